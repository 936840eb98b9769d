"""Orderly groups: what a queue or a sharding key has is handled in its order, whatever fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.group.batch_report import BatchReport
from jobs.group.lost_retries import send_again
from jobs.group.waiting_retries import WaitingRetries
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from lakemq.client import Client
from store_native.errors import LakeMQError
from store_native.names import PERM_READ, PERM_WRITE, retry_topic
from tests.support.broker_process import BrokerProcess
from tests.support.consume_steps import consume_while
from tests.support.dispatch_barrier import await_dispatch
from tests.support.spark_streams import TRIGGER
from tests.support.waiting import wait_until

HANDLERS = """
import os
from lakemq.handler import Verdict

def note(message):
    key, number, failures = message.text.split("/")
    with open(os.path.join({directory!r}, "calls"), "a") as calls:
        calls.write(f"{{key}} {{number}} {{message.attempt}}\\n")
    return message.attempt <= int(failures)

def fails_at_first(message):
    if note(message):
        raise ValueError("not yet")

def dies_at_first(message):
    if note(message):
        os._exit(7)

def takes_batches(batch):
    pass

async def waits(message):
    if note(message):
        return Verdict.retry("1s")
"""
SPARK_S = 120.0
Settings = Callable[..., ConsumeSettings]


@pytest.fixture
def settings(tmp_path: Path, shared_broker: BrokerProcess) -> Settings:
    module = f"orderly_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(HANDLERS.format(directory=str(tmp_path)))

    def make(topic: str, handler: str, **changes: Any) -> ConsumeSettings:
        values: dict[str, Any] = {
            "group": f"group-of-{topic}",
            "topics": (topic,),
            "handler": HandlerTarget(f"{module}:{handler}", "auto", (str(tmp_path),)),
            "ledger": ledger_at(str(tmp_path / "ledger")),
            "endpoint": shared_broker.endpoint,
            "start": "earliest",
            "mode": "orderly",
            "trigger": TRIGGER,
            "until_idle_s": 0.5,
        }
        return ConsumeSettings(**(values | changes))

    return make


def post(client: Client, topic: str, bodies: list[str], *, keyed: bool = True) -> None:
    """Sends `key/number/failures` each, by their keys; without keys all to queue 0."""
    messages = [
        Message(body, keys=[key], sharding_key=key) if keyed else Message(body, queue_id=0)
        for body in bodies
        for key in [body.split("/")[0]]
    ]
    client.send_many(topic, messages)
    await_dispatch(client)


def query(settings: ConsumeSettings, text: str) -> list[tuple[Any, ...]]:
    found = LedgerReader(str(settings.ledger)).sql(text).to_pylist()
    return [tuple(row.values()) for row in found]


def calls_in_order(tmp_path: Path, key: str) -> list[tuple[int, int]]:
    """The calls of a key's messages: number and attempt."""
    found = defaultdict(list)
    for line in (tmp_path / "calls").read_text().splitlines():
        of, number, attempt = line.split()
        found[of].append((int(number), int(attempt)))
    return found[key]


def check_ledger(settings: ConsumeSettings, messages: int) -> None:
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "parked_messages"):
        assert query(settings, f"SELECT * FROM {view}") == [], view
    done = query(settings, "SELECT state, count(*) FROM delivery_history GROUP BY state")
    assert done == [("ACK", messages)]


def attempts_in_order(settings: ConsumeSettings, keyed: bool = True) -> None:
    """No attempt at a message began before the last one at the message before it on its lane ended."""
    lanes: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    rows = query(
        settings,
        "SELECT topic, broker_name, queue_id, keys, first_started_at, last_finished_at FROM delivery_history "
        "ORDER BY topic, broker_name, queue_id, queue_offset",
    )
    for *queue, keys, began, ended in rows:
        lanes[(*queue, keys if keyed else "")].append((began, ended))
    for lane, times in lanes.items():
        for (_, ended), (began, _) in pairwise(times):
            assert ended <= began, lane


def test_each_key_is_handled_in_its_order_and_a_failing_one_holds_up_no_other(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("parts", read_queue_nums=2, write_queue_nums=2)
    failing = {("a", 2): 2, ("b", 0): 1, ("b", 5): 1}
    bodies = [f"{key}/{n}/{failing.get((key, n), 0)}" for n in range(8) for key in "abcd"]
    chosen = settings("parts", "fails_at_first")
    post(client, "parts", bodies)
    consume(chosen, lambda: spark)

    check_ledger(chosen, len(bodies))
    expected = {
        key: [(n, attempt) for n in range(8) for attempt in range(1, failing.get((key, n), 0) + 2)]
        for key in "abcd"
    }
    assert {key: calls_in_order(tmp_path, key) for key in "abcd"} == expected
    parked = query(chosen, "SELECT count(*) FROM deliveries WHERE verdict = 'PARKED'")
    assert parked == [(5 + 7,)], "behind a/2 and b/0; what is behind b/5 was parked before"
    levels = query(chosen, "SELECT DISTINCT delay_level FROM deliveries WHERE verdict = 'RETRY'")
    assert levels == [(1,)]


@pytest.mark.nightly
def test_a_queue_without_keys_is_one_lane_whose_parked_messages_go_on_some_at_a_time(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    """Two a batch, with nothing new on the topic: what goes on makes its own batches; so does a restart."""
    client = shared_broker.client()
    client.put_topic("queue", read_queue_nums=2, write_queue_nums=2)
    post(client, "queue", [f"all/{n}/{2 if n == 1 else 0}" for n in range(9)], keyed=False)
    chosen = settings("queue", "waits", max_messages_per_batch=2)
    consume(chosen, lambda: spark)
    check_ledger(chosen, 9)
    assert calls_in_order(tmp_path, "all") == [(0, 1), (1, 1), (1, 2), (1, 3), *((n, 1) for n in range(2, 9))]
    batches = query(chosen, "SELECT DISTINCT batch_id FROM deliveries WHERE verdict = 'ACK'")
    assert len(batches) > 4
    attempts_in_order(chosen, keyed=False)


def test_a_handler_that_ends_its_worker_is_a_failure_of_its_lane_alone(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("deadly", read_queue_nums=2, write_queue_nums=2)
    bodies = [f"{key}/{n}/{1 if (key, n) == ('a', 1) else 0}" for n in range(6) for key in "abc"]
    post(client, "deadly", bodies)
    chosen = settings("deadly", "dies_at_first")
    consume(chosen, lambda: spark)
    check_ledger(chosen, len(bodies))
    attempts_in_order(chosen)
    reasons = query(chosen, "SELECT reason FROM deliveries WHERE verdict = 'RETRY'")
    assert reasons == [("worker died (exit status 7)",)]
    for key in "abc":  # calls that were under way may have been made once more
        calls = calls_in_order(tmp_path, key)
        assert calls == sorted(calls)


def test_a_message_that_is_given_up_lets_its_lane_go_on(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("given-up", read_queue_nums=1, write_queue_nums=1)
    post(client, "given-up", [f"a/{n}/{99 if n in (0, 2) else 0}" for n in range(5)])
    chosen = settings("given-up", "fails_at_first", max_reconsume_times=1)
    consume(chosen, lambda: spark)
    assert calls_in_order(tmp_path, "a") == [(0, 1), (0, 2), (1, 1), (2, 1), (2, 2), (3, 1), (4, 1)]
    states = query(chosen, "SELECT state FROM delivery_history ORDER BY queue_offset")
    assert states == [("DEAD",), ("ACK",), ("DEAD",), ("ACK",), ("ACK",)]
    assert query(chosen, "SELECT queue_offset, attempts FROM dead_letters ORDER BY 1") == [(0, 2), (2, 2)]
    assert query(chosen, "SELECT * FROM parked_messages") == []


@pytest.mark.nightly
def test_a_queue_of_which_too_many_are_parked_is_read_no_further_until_they_go_on(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("bounded", read_queue_nums=2, write_queue_nums=2)
    for queue in (0, 1):
        bodies = [f"{queue}/{n}/{3 if (queue, n) == (0, 0) else 0}" for n in range(30)]
        client.send_many("bounded", [Message(body, queue_id=queue) for body in bodies])
    await_dispatch(client)
    chosen = settings("bounded", "fails_at_first", max_parked=3, max_messages_per_batch=10)
    consume(chosen, lambda: spark)
    check_ledger(chosen, 60)
    attempts_in_order(chosen, keyed=False)
    parked = "SELECT count(*) FROM deliveries WHERE verdict = 'PARKED' AND queue_id = "
    assert 0 < query(chosen, parked + "0")[0][0] < 3 + 10
    assert query(chosen, parked + "1") == [(0,)]


@pytest.mark.nightly
def test_runs_follow_each_other_and_another_mode_is_refused_while_messages_are_parked(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("runs", read_queue_nums=1, write_queue_nums=1)
    post(client, "runs", [f"a/{n}/{1 if n == 0 else 0}" for n in range(4)])
    chosen = settings("runs", "fails_at_first", available_now=True, until_idle_s=None)
    left: list[WaitingRetries] = []
    consume(chosen, lambda: spark, on_end=left.append)
    assert [(run.messages, run.parked) for run in left] == [(1, 3)]
    with pytest.raises(LakeMQError, match="3 messages of group group-of-runs are parked"):
        consume(replace(chosen, mode="concurrent"), lambda: spark)
    assert client.pull("%RETRY%group-of-runs", 0, 0, wait_ms=30_000).messages
    late = query(chosen, "SELECT topic, broker_name, queue_id, queue_offset, attempt FROM pending_retries")
    send_again(spark, chosen.ledger, chosen.group, shared_broker.endpoint, late)
    post(client, "runs", ["a/4/0"])
    consume(chosen, lambda: spark, on_end=left.append)
    assert [(run.messages, run.parked) for run in left[1:]] == [(0, 0)]
    check_ledger(chosen, 5)
    assert calls_in_order(tmp_path, "a") == [(0, 1), (0, 2), *((n, 1) for n in range(1, 5))]
    post(client, "runs", ["a/5/0"])
    consume(replace(chosen, mode="concurrent"), lambda: spark)
    check_ledger(chosen, 6)


def run_through(spark: SparkSession, settings: ConsumeSettings, **hooks: Any) -> WaitingRetries:
    """A run over what is there; returns what it leaves."""
    left: list[WaitingRetries] = []
    consume(settings, lambda: spark, on_end=left.append, **hooks)
    return left[0]


def test_a_run_goes_on_with_parked_messages_until_none_is_let_go_and_takes_nothing_new_along(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("rounds", read_queue_nums=1, write_queue_nums=1)
    post(client, "rounds", [f"a/{n}/{1 if n == 0 else 0}" for n in range(9)])
    changes: dict[str, Any] = {"available_now": True, "until_idle_s": None, "max_messages_per_batch": 2}
    chosen = settings("rounds", "fails_at_first", **changes)
    first = run_through(spark, chosen)
    assert (first.messages, first.parked) == (1, 8)
    assert client.group_offsets(chosen.group)["rounds", 0] == 1, "what is parked is not consumed"
    assert client.pull("%RETRY%group-of-rounds", 0, 0, wait_ms=30_000).messages
    batches: list[BatchReport] = []

    def while_it_runs(report: BatchReport) -> None:
        if not batches:
            post(client, "rounds", ["a/9/0"])
        batches.append(report)

    second = run_through(spark, chosen, on_batch=while_it_runs)
    assert (second.messages, second.parked) == (0, 0)
    assert client.group_offsets(chosen.group)["rounds", 0] == 9
    check_ledger(chosen, 9)
    assert calls_in_order(tmp_path, "a") == [(0, 1), (0, 2), *((n, 1) for n in range(1, 9))]
    assert run_through(spark, chosen) == WaitingRetries(0, None)
    check_ledger(chosen, 10)


@pytest.mark.nightly
def test_a_run_reads_on_in_a_queue_that_was_paused_once_its_messages_go_on(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("paused-rounds", read_queue_nums=1, write_queue_nums=1)
    post(client, "paused-rounds", [f"a/{n}/{1 if n == 0 else 0}" for n in range(12)])
    changes: dict[str, Any] = {"available_now": True, "until_idle_s": None, "max_messages_per_batch": 2}
    chosen = settings("paused-rounds", "fails_at_first", max_parked=3, **changes)
    first = run_through(spark, chosen)
    assert first.messages == 1
    assert 3 <= first.parked < 11, "it was paused"
    assert client.pull("%RETRY%group-of-paused-rounds", 0, 0, wait_ms=30_000).messages
    assert run_through(spark, chosen) == WaitingRetries(0, None)
    check_ledger(chosen, 12)
    attempts_in_order(chosen)


@pytest.mark.nightly
def test_a_run_keeps_to_what_was_there_and_to_its_own_bounds(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    """A queue was paused at the run's begin, by an earlier run that had larger batches."""
    client = shared_broker.client()
    client.put_topic("kept-to", read_queue_nums=1, write_queue_nums=1)
    post(client, "kept-to", [f"a/{n}/{1 if n == 0 else 0}" for n in range(12)])
    changes: dict[str, Any] = {"available_now": True, "until_idle_s": None}
    chosen = settings("kept-to", "fails_at_first", max_parked=7, max_messages_per_batch=4, **changes)
    assert run_through(spark, chosen).parked == 7
    again = retry_topic(chosen.group)
    assert client.pull(again, 0, 0, wait_ms=30_000).messages
    batches: list[BatchReport] = []
    stored = [1]

    def while_it_runs(report: BatchReport) -> None:
        if not batches:
            post(client, "kept-to", [f"a/{n}/0" for n in range(12, 20)])
        batches.append(report)
        await_dispatch(client)
        stored.append(client.queues(again)[0].max_offset)

    less = replace(chosen, max_parked=3, max_messages_per_batch=3)
    assert run_through(spark, less, on_batch=while_it_runs) == WaitingRetries(0, None)
    check_ledger(chosen, 12)
    assert batches[0].messages == 1 + 3, "the retry, and as many parked messages as the run may"
    assert all(after - before <= 1 for before, after in pairwise(stored)), "a wake-up for each batch"
    assert run_through(spark, chosen) == WaitingRetries(0, None)
    check_ledger(chosen, 20)
    attempts_in_order(chosen)


@pytest.mark.nightly
def test_a_run_whose_wake_ups_no_broker_takes_ends_and_says_so(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings
) -> None:
    client = shared_broker.client()
    client.put_topic("refused-rounds", read_queue_nums=1, write_queue_nums=1)
    post(client, "refused-rounds", [f"a/{n}/{1 if n == 0 else 0}" for n in range(9)])
    changes: dict[str, Any] = {"available_now": True, "until_idle_s": None, "max_messages_per_batch": 2}
    chosen = settings("refused-rounds", "fails_at_first", **changes)
    run_through(spark, chosen)
    again = retry_topic(chosen.group)
    assert client.pull(again, 0, 0, wait_ms=30_000).messages
    client.put_topic(again, perm=PERM_READ)
    with pytest.raises(LakeMQError, match=f"but parked messages whose turn it is.*{again}"):
        consume(chosen, lambda: spark)
    assert query(chosen, "SELECT count(*) FROM parked_messages") == [(6,)], "as its first batch left it"
    client.put_topic(again, perm=PERM_READ | PERM_WRITE)
    assert run_through(spark, chosen) == WaitingRetries(0, None)
    check_ledger(chosen, 9)


@pytest.mark.nightly
def test_a_lane_goes_on_once_a_broker_that_refused_the_wake_up_takes_it(
    spark: SparkSession, shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("refusing", read_queue_nums=1, write_queue_nums=1)
    post(client, "refusing", [f"a/{n}/{1 if n == 0 else 0}" for n in range(9)])
    chosen = settings("refusing", "fails_at_first", until_idle_s=None, max_messages_per_batch=3)
    assert run_through(spark, replace(chosen, available_now=True)).parked == 8
    again = retry_topic(chosen.group)
    assert client.pull(again, 0, 0, wait_ms=30_000).messages
    client.put_topic(again, perm=PERM_READ)

    def counted(text: str) -> int:
        return int(query(chosen, f"SELECT count(*) FROM {text}")[0][0])

    def steps() -> None:
        wait_until(lambda: counted("parked_messages") < 8, SPARK_S)
        client.put_topic(again, perm=PERM_READ | PERM_WRITE)
        wait_until(lambda: counted("deliveries WHERE verdict = 'ACK'") == 9, SPARK_S)

    consume_while(chosen, spark, steps)
    check_ledger(chosen, 9)
    attempts_in_order(chosen)


def test_a_handler_of_batches_is_refused_before_spark_starts(
    shared_broker: BrokerProcess, settings: Settings, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("refused", read_queue_nums=1, write_queue_nums=1)
    chosen = settings("refused", "takes_batches")
    module = f"orderly_{tmp_path.name}"
    batches = HandlerTarget(f"{module}:takes_batches", "yes", (str(tmp_path),))
    with pytest.raises(LakeMQError, match="orderly mode calls with one message"):
        consume(replace(chosen, handler=batches), lambda: pytest.fail("a session was made"))
