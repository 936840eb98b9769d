"""A group in runs that end by themselves: what is there is handled, the rest is left and said.

Contract: a run ends without being stopped; what was there when it began has one row per attempt, however
often the group is run; a retry that is due later is left for a run that comes then, and counted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.group.batch_report import BatchReport
from jobs.group.waiting_retries import WaitingRetries
from jobs.runtime.run_loop import RunLoop
from lakemq import Message
from lakemq.cli.app import main
from tests.support.available_runs import available_now
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.held_handler import HeldHandler
from tests.support.waiting import wait_until

HANDLERS = """
from lakemq.handler import Verdict

def handle(message):
    if message.text == "late" and message.attempt == 1:
        raise ValueError("not yet")
    if message.text == "never":
        return Verdict.dead("no")
"""
EMPTY = ("duplicate_deliveries", "delivery_gaps", "pending_dead_letters")


def rows(ledger: Path, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in LedgerReader(ledger).sql(text).to_pylist()]


def send(broker: BrokerProcess, topic: str, *texts: str) -> None:
    with broker.client() as client:
        client.send_many(topic, [Message(text) for text in texts])
        await_dispatch(client)


def test_each_run_handles_what_is_there_and_leaves_what_is_due_later(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "available_now_handlers.py").write_text(HANDLERS)
    with shared_broker.client() as client:
        client.put_topic("runs", read_queue_nums=2, write_queue_nums=2)
    more = {"endpoint": shared_broker.endpoint, "retry_delays": "1s"}
    settings = available_now("runs", "available_now_handlers:handle", tmp_path, **more)

    def run() -> tuple[int, WaitingRetries]:
        handled: list[BatchReport] = []
        left: list[WaitingRetries] = []
        consume(settings, lambda: spark, on_batch=handled.append, on_end=left.append)
        (waiting,) = left
        return sum(report.messages for report in handled), waiting

    ledger = tmp_path / "ledger"
    send(shared_broker, "runs", *"abcdefgh", "late", "never")
    handled, left = run()
    assert (handled, left.messages) == (10, 1)
    ((failed_at, due),) = rows(ledger, "SELECT failed_at, next_attempt_at FROM pending_retries")
    assert left.first_due_at == due > failed_at
    assert rows(ledger, "SELECT reason FROM dead_letters") == [("no",)], "the streams over the ledger ran too"

    with shared_broker.client() as client:  # woken when the retry is due
        assert client.pull("%RETRY%runs", 0, 0, wait_ms=30_000).messages
    send(shared_broker, "runs", "i", "j")
    assert run() == (3, WaitingRetries(0, None))
    assert run() == (0, WaitingRetries(0, None))

    assert rows(ledger, "SELECT attempt, verdict, count(*) FROM deliveries GROUP BY 1, 2 ORDER BY 1, 2") == [
        (1, "ACK", 10),
        (1, "DEAD", 1),
        (1, "RETRY", 1),
        (2, "ACK", 1),
    ]
    for view in EMPTY:
        assert rows(ledger, f"SELECT * FROM {view}") == [], view


def test_what_a_stopped_run_did_not_send_back_is_handled_by_the_next_one(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "unsent_handlers.py").write_text(HANDLERS)
    with shared_broker.client() as client:
        client.put_topic("unsent", read_queue_nums=1, write_queue_nums=1)
    more = {"endpoint": shared_broker.endpoint, "retry_delays": "1s"}
    settings = available_now("unsent", "unsent_handlers:handle", tmp_path, **more)
    send(shared_broker, "unsent", "a", "late", "never")
    loops: list[RunLoop] = []
    consume(settings, lambda: spark, started=loops.append, on_batch=lambda report: loops[0].stop())
    ledger = tmp_path / "ledger"
    assert rows(ledger, "SELECT count(*) FROM pending_retries") == [(1,)]
    with shared_broker.client() as client:
        assert not client.pull("%RETRY%unsent", 0, 0).messages, "the run was stopped before"
    ((due,),) = rows(ledger, "SELECT next_attempt_at FROM pending_retries")
    wait_until(lambda: datetime.now(UTC) > due, otherwise=lambda: f"the retry is due at {due}")
    left: list[WaitingRetries] = []
    consume(settings, lambda: spark, on_end=left.append)
    assert left == [WaitingRetries(0, None)]
    assert rows(ledger, "SELECT attempt, verdict FROM deliveries WHERE attempt > 1") == [(2, "ACK")]
    assert rows(ledger, "SELECT reason FROM dead_letters") == [("no",)]


def test_a_cloned_group_handles_what_the_other_one_has_not(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "clone_handlers.py").write_text(HANDLERS)
    with shared_broker.client() as client:
        client.put_topic("cloned", read_queue_nums=2, write_queue_nums=2)

    def run(group: str) -> int:
        handled: list[BatchReport] = []
        more = {"endpoint": shared_broker.endpoint, "topics": ("cloned",)}
        settings = available_now(group, "clone_handlers:handle", tmp_path, **more)
        consume(settings, lambda: spark, on_batch=handled.append)
        return sum(report.messages for report in handled)

    send(shared_broker, "cloned", *"abcd")
    assert run("stands-here") == 4
    send(shared_broker, "cloned", *"efg")
    endpoint = ("--endpoint", shared_broker.endpoint)
    assert main(["group", "clone", "stands-here", "begins-there", "--execute", *endpoint]) == 0
    assert run("begins-there") == 3
    assert run("stands-here") == 3, "it is where it was"


@pytest.mark.nightly
@pytest.mark.long
def test_the_command_ends_with_exit_code_0_and_says_what_waits(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "ending.py").write_text(HANDLERS)
    with shared_broker.client() as client:
        client.put_topic("ending", read_queue_nums=1, write_queue_nums=1)
    send(shared_broker, "ending", "a", "b", "late")
    arguments = ("--group", "ending", "--topic", "ending", "--handler", "ending:handle", "--from", "earliest")
    more = ("--available-now", "--retry-delays", "2h", "--endpoint", shared_broker.endpoint)
    with ConsumerProcess(tmp_path, *arguments, *more) as consumer:
        consumer.await_started()
        assert consumer.process.stdout is not None
        said = consumer.process.stdout.read().decode()
        assert consumer.wait() == 0, consumer.log()
    assert "3 handled: 2 acknowledged, 1 to come again, 0 given up" in said
    assert "1 wait for a retry in a later run, the first is due at 20" in said


@pytest.mark.nightly
@pytest.mark.long
def test_a_run_that_is_stopped_ends_behind_its_batch_and_the_next_one_goes_on(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    handler = HeldHandler(tmp_path, "held_in_a_run")
    with shared_broker.client() as client:
        client.put_topic("stopped-run", read_queue_nums=1, write_queue_nums=1)
    send(shared_broker, "stopped-run", "a", "b", "c", "d")
    arguments = [
        *("--group", "stopped-run", "--topic", "stopped-run", "--handler", "held_in_a_run:hold"),
        *("--from", "earliest", "--max-batch", "2", "--concurrency", "1", "--available-now"),
        *("--endpoint", shared_broker.endpoint),
    ]
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.wait_for(handler.handling.exists)
        consumer.terminate()
        handler.go_on.touch()
        assert consumer.wait() == 0, consumer.log()
        assert "stopped before its end: the next run handles what is left" in consumer.log()
    ledger = tmp_path / "ledger"
    assert rows(ledger, "SELECT count(*) FROM deliveries") == [(2,)]
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        assert consumer.wait() == 0, consumer.log()
    assert rows(ledger, "SELECT verdict, count(*) FROM deliveries GROUP BY 1") == [("ACK", 4)]
    assert sorted(handler.calls()) == ["0/1", "1/1", "2/1", "3/1"]
