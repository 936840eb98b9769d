"""`lakemq consume`: runs a consumer group in Spark, with its ledger.

Owns the options and how the outcome is shown. The work is jobs.consume's, imported when the command
runs, because it needs Spark.
"""

from __future__ import annotations

import argparse
import logging
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemq.cli import spark_log
from lakemq.cli.failure import CommandFailed
from lakemq.cli.options import add_endpoint
from store_native.errors import InternalError, LakeMQError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.settings import ConsumeSettings

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def register(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "consume",
        help="run a consumer group in Spark, with its ledger",
        description="Reads topics as a consumer group, calls a handler for each message and records every "
        "outcome in the ledger. What fails comes back after a delay; what is given up becomes a dead letter. "
        "Ctrl-C or SIGTERM stops between batches.",
    )
    parser.add_argument("--group", required=True, help="the consumer group")
    parser.add_argument(
        "--topic", required=True, action="append", dest="topics", metavar="TOPIC", help="a topic; repeatable"
    )
    parser.add_argument(
        "--handler",
        required=True,
        metavar="MODULE:FUNCTION",
        help="called with each message, or with batches",
    )
    add_endpoint(parser)
    parser.add_argument("--path", metavar="STORE", help="read a store on this machine from its files")
    parser.add_argument(
        "--ledger", default="ledger", metavar="DIR", help="a directory, or catalog.schema (default: ledger)"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="default: under the ledger")
    parser.add_argument(
        "--max-reconsume-times",
        type=int,
        metavar="N",
        help="retries before a message is given up (the group's --retry-max-times; 16 for a new group)",
    )
    parser.add_argument("--retry-delays", metavar='"10s 30s ..."', help="delay of each retry in turn")
    parser.add_argument("--tags", default="*", metavar="EXPR", help="tag filter: A || B")
    parser.add_argument(
        "--trigger", default="1s", type=duration_s, metavar="TIME", help="batch interval (1s)"
    )
    parser.add_argument(
        "--max-batch", default=200_000, type=int, metavar="N", help="messages in one batch at most (200000)"
    )
    parser.add_argument(
        "--mode",
        choices=("concurrent", "broadcast", "orderly"),
        default="concurrent",
        help="concurrent: a failed message is retried; broadcast: it is not",
    )
    parser.add_argument(
        "--from",
        choices=("earliest", "latest"),
        default="latest",
        dest="start",
        help="where a group begins that neither the ledger nor the broker knows (latest: at the end)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "record"),
        default="fail",
        help="what expired or is damaged: end with an error, or pass over it and record it in the ledger",
    )
    parser.add_argument(
        "--until-idle",
        type=duration_s,
        metavar="TIME",
        help="end when nothing was new, pending or due so long",
    )
    parser.add_argument(
        "--vectorised", choices=("auto", "yes", "no"), default="auto", help="handler of batches"
    )
    parser.add_argument("--driver-memory", default="2g", metavar="SIZE", help="memory of Spark's JVM (2g)")
    parser.add_argument(
        "--spark-log", type=Path, metavar="FILE", help="where Spark's log goes (spark.log by the checkpoint)"
    )
    # For tests that kill the process between the ledger's commit and Spark's.
    parser.add_argument("--halt-after-ledger-commit", type=Path, metavar="FIFO", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Runs the group until it is stopped or idle."""
    from jobs.consume import consume
    from lakemq import spark

    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("jobs.group_start").setLevel(logging.INFO)  # where a new group begins
    settings = settings_of(args)
    log = args.spark_log or settings.checkpoint_of("group").parent / spark_log.NAME
    with ExitStack() as stack:

        def make_session() -> SparkSession:
            made = spark.session(
                f"lakemq consume {settings.group}", **{"spark.driver.memory": args.driver_memory}
            )
            stack.callback(made.stop)
            spark_log.move_to(log, made)
            return made

        try:
            consume(
                settings,
                make_session,
                after_ledger_commit=_halt(args.halt_after_ledger_commit),
                started=lambda loop: _say_started(settings),
            )
        except InternalError as error:
            raise CommandFailed(_failure(settings, error, log)) from error
    return 0


def _failure(settings: ConsumeSettings, error: LakeMQError, log: Path) -> str:
    """Says in one sentence what ended a running group, with the handler and where Java's stacks are."""
    seen = f"; Spark's log is {log}" if log.exists() else ""
    return f"group {settings.group}: {error.detail} (handler {settings.handler.target}{seen})"


def settings_of(args: argparse.Namespace) -> ConsumeSettings:
    """Reads the options.

    Raises:
        InvalidRequest: an option is wrong; NOT_IMPLEMENTED for the orderly mode.
    """
    from delta_tables.ledger import ledger_at
    from jobs.handler_loader import HandlerTarget
    from jobs.settings import ConsumeSettings
    from store_native.errors import from_code

    if args.mode == "orderly":
        raise from_code(
            "NOT_IMPLEMENTED", "orderly mode comes with a later release: use concurrent until then"
        )
    return ConsumeSettings(
        group=args.group,
        topics=tuple(dict.fromkeys(args.topics)),
        handler=HandlerTarget(args.handler, args.vectorised, (str(Path.cwd()),)),
        ledger=ledger_at(args.ledger),
        checkpoint=None if args.checkpoint is None else args.checkpoint.absolute(),
        endpoint=args.endpoint,
        path=None if args.path is None else str(Path(args.path).absolute()),
        tags=args.tags,
        start=args.start,
        max_reconsume_times=args.max_reconsume_times,
        retry_delays=args.retry_delays,
        trigger=f"{round(args.trigger * 1000)} milliseconds",
        max_messages_per_batch=args.max_batch,
        mode=args.mode,
        on_data_loss=args.on_data_loss,
        until_idle_s=args.until_idle,
    )


def duration_s(text: str) -> float:
    """Reads `10s`, `500ms`, `2m` or plain seconds (an argparse type).

    >>> duration_s("2m")
    120.0
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 10s, 500ms or 2m")
    return float(match[1]) * _UNIT_S[match[2]]


def _say_started(settings: ConsumeSettings) -> None:
    topics = ", ".join(settings.topics)
    print(f"group {settings.group} consumes {topics}; ledger {settings.ledger}", flush=True)


def _halt(fifo: Path | None) -> Callable[[int], None]:
    """Writes the batch id into a named pipe and goes no further: whoever reads it kills the process."""
    if fifo is None:
        return lambda batch_id: None

    def halt(batch_id: int) -> None:
        fifo.write_text(f"{batch_id}\n", encoding="ascii")
        threading.Event().wait()

    return halt
