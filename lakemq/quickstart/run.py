"""The quick start's order of steps, and what a person sees of them.

Owns the directory it works in: only what carries its mark is ever deleted.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.handler.loader import HandlerTarget
from lakemq.broker_process import BrokerProcess
from lakemq.client import Client
from lakemq.java import require_java
from lakemq.quickstart import broker as quickstart_broker
from lakemq.quickstart import flights, summary
from lakemq.quickstart.consumer import Consumption
from lakemq.quickstart.home import empty_home
from lakemq.quickstart.report import Report
from lakemq.quickstart.sql_queries import SqlQueries
from lakemq.terminal.failure import CommandFailed
from lakemq.terminal.progress_bar import Progress
from lakemq.upload import bulk, ndjson

GROUP = "arrivals"
FLIGHTS_HANDLER = "lakemq.quickstart.handlers:arrived"
ACCEPT_ALL = "lakemq.quickstart.handlers:accept"
_BATCH = 2_000
_BATCH_BYTES = 1 << 20
_CONNECTIONS = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line asked for.

    Attributes:
        directory: Where everything goes.
        source: NDJSON to post instead of the flights.
        rule: What a line of ``source`` means.
        handler: ``module:function``; None is the flights' own, or one that accepts all.
        keep_serving: Leave the broker running at the end, until Ctrl-C.
    """

    directory: Path
    source: Path | None
    rule: ndjson.LineRule
    handler: str | None
    keep_serving: bool

    @property
    def topic(self) -> str:
        """Where the messages go."""
        return "flights" if self.source is None else "events"


def say_now(text: str) -> None:
    """Prints at once, also into a pipe or a file: the whole takes minutes."""
    print(text, flush=True)


def run(settings: Settings, say: Callable[[str], None] = say_now) -> Report:
    """Runs all steps and writes report.json.

    Raises:
        CommandFailed: A step could not be done; says which log tells more.
        InvalidRequest: There is no such handler, or no Java; nothing was begun.
    """
    if settings.handler is not None:
        HandlerTarget(settings.handler, search_path=(str(Path.cwd()),)).load()
    require_java()
    started = time.monotonic()
    home = empty_home(settings.directory)
    say("LakeMQ quick start\n==================")
    source, rule, total, expected = _input(settings, say)
    with quickstart_broker.start(home) as broker:
        say(f"\nBroker\n  a new store in {home / 'store'}, serving {broker.endpoint}")
        say("\nPost")
        with Progress(f"to {settings.topic}", total, plain=say) as progress:
            posted = _post(broker.endpoint, settings.topic, source, rule, progress.add)
        say(_posted_text(posted))
        if posted.posted == 0:
            raise CommandFailed(f"{source} has no message: there is nothing to consume")
        consumption = Consumption(
            endpoint=broker.endpoint,
            topic=settings.topic,
            group=GROUP,
            handler=settings.handler or (FLIGHTS_HANDLER if settings.source is None else ACCEPT_ALL),
            ledger=home / "ledger",
            checkpoint=home / "checkpoint",
            log=home / "consume.log",
        )
        say(f"\nConsume\n  {_typed(consumption.command())}")
        consume_started = time.monotonic()
        with Progress(f"by {GROUP}", posted.acknowledged, plain=say) as progress:
            consumption.run(progress.add)
        consume_seconds = time.monotonic() - consume_started
        say(f"  ended by itself after {consume_seconds:.1f} s, when nothing was new, pending or due")
        queries = _queries(consumption.ledger)
        report = _report(posted, queries, started, consume_seconds, expected)
        report.write(home / "report.json")
        say(summary.outcome(queries, report, broker.endpoint, GROUP))
        _show_next_steps(settings, home, broker, report, say)
    return report


def _input(
    settings: Settings, say: Callable[[str], None]
) -> tuple[Path, ndjson.LineRule, int | None, int | None]:
    """Returns the file to post, what its lines mean, how many there are, how many must fail."""
    if settings.source is not None:
        if not settings.source.is_file():
            raise CommandFailed(f"{settings.source}: there is no such file")
        say(f"\nInput\n  {settings.source}")
        return settings.source, settings.rule, None, None
    say("\nInput")
    prepared = flights.prepare(settings.directory / "input")
    say(
        f"  {prepared.count:,} flights that left New York in 2013 ({flights.PACKAGE});"
        f" {prepared.never_departed:,} of them never departed"
    )
    expected = prepared.never_departed if settings.handler is None else None
    return prepared.path, ndjson.LineRule("message"), prepared.count, expected


def _post(
    endpoint: str, topic: str, source: Path, rule: ndjson.LineRule, on_acknowledged: Callable[[int], None]
) -> bulk.Posted:
    with Client(endpoint, pool_size=_CONNECTIONS) as client, source.open("rb") as lines:
        batches = ndjson.batches(lines, rule, max_count=_BATCH, max_bytes=_BATCH_BYTES)
        return bulk.post(client, topic, batches, connections=_CONNECTIONS, on_acknowledged=on_acknowledged)


def _posted_text(posted: bulk.Posted) -> str:
    answers = ", ".join(f"{status} {count}" for status, count in posted.statuses.items())
    return (
        f"  {posted.posted:,} messages posted, {posted.acknowledged:,} acknowledged"
        f" in {posted.seconds:.1f} s: {posted.rate:,.0f} a second\n"
        f"  NDJSON in batches of {_BATCH:,}, {_CONNECTIONS} connections; answers: {answers}"
    )


def _queries(ledger: Path) -> SqlQueries:
    from delta_tables.ledger_reader import LedgerReader

    return SqlQueries(LedgerReader(ledger), GROUP)


def _report(
    posted: bulk.Posted, queries: SqlQueries, started: float, consume_seconds: float, expected: int | None
) -> Report:
    counts = queries.counts()
    return Report(
        posted=posted.posted,
        acknowledged=posted.acknowledged,
        consumed=counts.consumed,
        retried=counts.retried,
        dead_lettered=counts.dead_lettered,
        unfinished=posted.acknowledged - counts.finished,
        gaps=counts.gaps,
        duplicates=counts.duplicates,
        seconds=round(time.monotonic() - started, 1),
        ingest_seconds=round(posted.seconds, 3),
        ingest_rate=round(posted.rate, 1),
        consume_seconds=round(consume_seconds, 1),
        expected_dead_letters=expected,
    )


def _show_next_steps(
    settings: Settings, home: Path, broker: BrokerProcess, report: Report, say: Callable[[str], None]
) -> None:
    problems = report.problems()
    verdict = "All is well." if not problems else "Not well: " + "; ".join(problems) + "."
    say(f"\n{verdict} {report.seconds:.0f} s in all; the numbers are in {home / 'report.json'}.")
    serve = "" if settings.keep_serving else f"  lakemq serve --config {quickstart_broker.config_of(home)}\n"
    address = f" --endpoint {broker.endpoint}" if settings.keep_serving else ""
    ledger = home / "ledger"
    say(
        f"\nLook further\n"
        f'  lakemq sql "SELECT * FROM dead_letter_summary" --ledger {ledger}\n'
        f'  lakemq sql "SELECT * FROM group_progress" --ledger {ledger}\n'
        f"{serve}"
        f"  lakemq tail {settings.topic} --max 5{address}\n"
        f"  lakemq group offsets {GROUP}{address}"
    )
    if settings.keep_serving:
        say(f"\nThe broker serves {broker.endpoint} until Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):  # here Ctrl-C is the ordinary end
            broker.wait()


def _typed(words: Sequence[str]) -> str:
    """Writes a command as one would type it, an option a line."""
    lines = [" ".join(words[:2])]
    for option, value in zip(words[2::2], words[3::2], strict=True):
        lines.append(f"{option} {shlex.quote(value)}")
    return " \\\n      ".join(lines)
