"""A batch of a handler that became slow: what is done is in the ledger soon, the rest is handled next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.group_status import ledger_status
from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.group.batch_report import BatchReport
from jobs.handler.invocation import HandlerHost, Isolation
from jobs.handler.loader import HandlerTarget
from jobs.handler.verdicts import GOES_ON, PUT_OFF
from jobs.settings import ConsumeSettings, Mode
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.spark_streams import TRIGGER

MESSAGES = 6
# One call takes longer than a batch may: of each task the first message is handled.
SLOW = """
import threading
from datetime import UTC, datetime
from pathlib import Path

def slow(message):
    threading.Event().wait(0.3)
    with (Path(__file__).parent / "calls").open("a") as calls:
        calls.write(message.text + "\\n")
"""


def new(number: int, lanes: int | None = None) -> Message:
    """A message, on one of some lanes."""
    return Message(str(number), sharding_key=None if lanes is None else str(number % lanes))


def settings_for(
    broker: BrokerProcess, directory: Path, topic: str, mode: Mode, lanes: int | None = None, **more: Any
) -> ConsumeSettings:
    """A group of some messages, with a handler that takes longer than a batch may."""
    module = topic.replace("-", "_")
    (directory / f"{module}.py").write_text(SLOW)
    with broker.client() as client:
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
        client.send_many(topic, [new(number, lanes) for number in range(MESSAGES)])
        await_dispatch(client)
    return ConsumeSettings(
        group=topic,
        topics=(topic,),
        handler=HandlerTarget(f"{module}:slow", "auto", (str(directory),)),
        ledger=ledger_at(str(directory / "ledger")),
        endpoint=broker.endpoint,
        start="earliest",
        mode=mode,
        max_reconsume_times=0,  # being put off is no attempt: nothing is DEAD
        trigger=TRIGGER,
        batch_time_s=0.05,
        host=HandlerHost(concurrency=1, isolation="process" if mode == "orderly" else "thread"),
        **more,
    )


@pytest.mark.parametrize("mode", ["concurrent", pytest.param("orderly", marks=pytest.mark.nightly)])
def test_a_slow_handler_holds_nothing_back_and_each_message_is_handled_once(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, mode: Mode
) -> None:
    reports: list[BatchReport] = []
    topic = f"slow-{mode}"
    settings = settings_for(shared_broker, tmp_path, topic, mode, until_idle_s=0.2)
    consume(settings, lambda: spark, on_batch=reports.append)

    def rows(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in LedgerReader(tmp_path / "ledger").sql(text).to_pylist()]

    calls = [int(line) for line in (tmp_path / "calls").read_text().split()]
    assert sorted(calls) == list(range(MESSAGES)), "each is called once"
    if mode == "orderly":
        assert calls == list(range(MESSAGES))
    done = rows("SELECT queue_offset FROM deliveries WHERE verdict = 'ACK' ORDER BY queue_offset")
    assert done == [(number,) for number in range(MESSAGES)]
    others = rows("SELECT DISTINCT verdict, reason FROM deliveries WHERE verdict <> 'ACK'")
    assert others == [("RETRY", PUT_OFF.reason) if mode == "concurrent" else ("PARKED", None)]
    assert rows("SELECT * FROM duplicate_deliveries") == rows("SELECT * FROM delivery_gaps") == []
    assert sum(report.messages for report in reports) == MESSAGES
    assert sum(report.retried for report in reports) == 0
    status = ledger_status(LedgerReader(tmp_path / "ledger"), topic, datetime.now(UTC))
    assert status.last_error is None
    assert sum(handling.attempts for handling in status.handling) == MESSAGES
    assert sum(handling.failed for handling in status.handling) == 0


# The first message's call goes on until it is let go; the others take no time.
LONG = """
import asyncio
import threading
from pathlib import Path

HERE = Path(__file__).parent

def begin(message):
    with (HERE / "calls").open("a") as calls:
        calls.write(message.text + "\\n")
    return message.text == "0"

def threads(message):
    is_long = begin(message)
    while is_long and not (HERE / "let-go").exists():
        threading.Event().wait(0.02)

async def coroutines(message):
    is_long = begin(message)
    while is_long and not (HERE / "let-go").exists():
        await asyncio.sleep(0.02)
"""
LATER = range(MESSAGES, MESSAGES + 3)


@pytest.mark.parametrize(
    ("handler", "isolation", "mode"),
    [
        ("threads", "thread", "concurrent"),
        ("coroutines", "thread", "orderly"),
        pytest.param("coroutines", "thread", "concurrent", marks=pytest.mark.nightly),
        pytest.param("threads", "process", "orderly", marks=pytest.mark.nightly),
        ("coroutines", "process", "concurrent"),
    ],
)
def test_a_call_that_takes_long_holds_up_neither_its_batch_nor_the_next_one(
    spark: SparkSession,
    shared_broker: BrokerProcess,
    tmp_path: Path,
    handler: str,
    isolation: Isolation,
    mode: Mode,
) -> None:
    """In orderly mode what is on its lane waits for it."""
    topic = f"long-{handler}-{isolation}-{mode}"
    lanes = MESSAGES if mode == "orderly" else None
    settings = settings_for(shared_broker, tmp_path, topic, mode, lanes, until_idle_s=0.2)
    module = f"long_{handler}_{isolation}_{mode}"
    (tmp_path / f"{module}.py").write_text(LONG)
    target = HandlerTarget(f"{module}:{handler}", "auto", (str(tmp_path),))
    host = HandlerHost(concurrency=4, isolation=isolation)
    settings = replace(settings, handler=target, host=host)
    behind = [number for number in LATER if lanes and number % lanes == 0]

    def rows(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in LedgerReader(tmp_path / "ledger").sql(text).to_pylist()]

    def on_batch(report: BatchReport) -> None:
        done = rows("SELECT queue_offset FROM deliveries WHERE verdict = 'ACK'")
        if report.put_off and len(done) == MESSAGES - 1:
            with shared_broker.client() as client:
                client.send_many(topic, [new(number, lanes) for number in LATER])
        if len(done) == MESSAGES - 1 + len(LATER) - len(behind):
            (tmp_path / "let-go").touch()

    consume(settings, lambda: spark, on_batch=on_batch)
    calls = [int(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert sorted(calls) == [*range(MESSAGES), *LATER]
    assert not behind or calls[-1] == behind[0]
    attempts = rows("SELECT verdict, reason FROM deliveries WHERE queue_offset = 0 ORDER BY attempt")
    assert attempts == [("RETRY", GOES_ON.reason)] * (len(attempts) - 1) + [("ACK", None)]
    assert len(attempts) > 1
    assert rows("SELECT * FROM duplicate_deliveries") == rows("SELECT * FROM delivery_gaps") == []
    (took,) = rows(
        "SELECT min(finished_at) FILTER (WHERE verdict = 'RETRY')"
        " BETWEEN min(started_at) AND max(finished_at) FROM deliveries WHERE queue_offset = 0"
    )
    assert took == (True,), "the outcome's row has the times of the call"


def test_a_run_over_what_is_there_leaves_nothing_for_a_later_one(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    settings = settings_for(shared_broker, tmp_path, "slow-there", "concurrent", available_now=True)
    consume(settings, lambda: spark)
    text = "SELECT verdict, attempt FROM deliveries"
    done = LedgerReader(tmp_path / "ledger").sql(text).to_pylist()
    assert done == [{"verdict": "ACK", "attempt": 1}] * MESSAGES
