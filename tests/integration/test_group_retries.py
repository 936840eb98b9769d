"""How often and when messages come again: what the group was made with, unless the job says otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from delta_tables.views import TABLES
from jobs.consume import consume, retry_policy
from jobs.group.job import GroupJob
from jobs.group.lost_retries import LATE, send_again
from jobs.handler.loader import HandlerTarget
from jobs.runtime.batch_gate import BatchGate
from jobs.settings import ConsumeSettings
from lakemq.client import Client, InvalidRequest, Message, Unavailable
from tests.support.available_runs import available_now
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.ledger_rows import append, delivery, path_ledger
from tests.support.spark_streams import TRIGGER
from tests.support.two_drivers import Driver


def settings(group: str, tmp_path: Path, most: int | None = None) -> ConsumeSettings:
    return ConsumeSettings(
        group=group,
        topics=("orders",),
        handler=HandlerTarget("shop:handle"),
        ledger=ledger_at(str(tmp_path)),
        max_reconsume_times=most,
    )


def test_a_group_has_the_retries_it_was_made_with(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    group = f"retries-{uuid4().hex[:12]}"
    with shared_broker.client() as client:
        assert retry_policy(client, settings(group, tmp_path)).max_reconsume_times == 16, "nobody made it yet"
        client.put_group(group, retry_max_times=3)
        assert retry_policy(client, settings(group, tmp_path)).max_reconsume_times == 3
        client.put_group(group, retry_max_times=0)
        assert retry_policy(client, settings(group, tmp_path)).max_reconsume_times == 0


def test_the_option_wins(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    group = f"retries-{uuid4().hex[:12]}"
    with shared_broker.client() as client:
        client.put_group(group, retry_max_times=3)
        assert retry_policy(client, settings(group, tmp_path, 0)).max_reconsume_times == 0
        assert retry_policy(client, settings(group, tmp_path, 7)).max_reconsume_times == 7
        with pytest.raises(InvalidRequest, match="0 or more"):
            retry_policy(client, settings(group, tmp_path, -1))


def test_a_broker_that_does_not_answer_is_not_a_group_without_a_setting(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    with Client("127.0.0.1:1", retries=0) as client, pytest.raises(Unavailable):
        retry_policy(client, settings("anybody", tmp_path))


HANDLER = """
def handle(message):
    raise ValueError("never")
"""


def test_a_restart_with_another_policy_decides_about_later_failures_only(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    """What waits comes when it was said to; the next failure is the new policy's matter."""
    (tmp_path / "never_handlers.py").write_text(HANDLER)
    group = f"policies-{uuid4().hex[:12]}"
    more = {"endpoint": shared_broker.endpoint, "retry_delays": "5s,1s"}
    first = available_now(group, "never_handlers:handle", tmp_path, **more)
    with shared_broker.client() as client:
        client.put_topic(group, read_queue_nums=1, write_queue_nums=1)
        client.send(group, "x")
        await_dispatch(client)
        consume(first, lambda: spark)
        assert client.pull(f"%RETRY%{group}", 0, 0, wait_ms=30_000).messages
        consume(replace(first, retry_delays=None, retry_backoff="1s..1s"), lambda: spark)
        assert client.pull(f"%RETRY%{group}", 0, 1, wait_ms=30_000).messages
    consume(replace(first, max_reconsume_times=1), lambda: spark)
    found = LedgerReader(tmp_path / "ledger").sql(
        "SELECT attempt, verdict, delay_level FROM deliveries ORDER BY attempt"
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (1, "RETRY", 2),
        (2, "RETRY", 1),
        (3, "DEAD", None),
    ]


@pytest.mark.parametrize(
    ("size", "limits"),
    [
        pytest.param(2_000, "max_message_bytes = 1000\n", marks=pytest.mark.nightly),
        (200_000, "max_message_bytes = 1000\nmax_request_bytes = 1000\n"),
    ],
)
def test_a_message_of_before_limits_were_lowered_comes_back_and_becomes_a_dead_letter(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path, size: int, limits: str
) -> None:
    (tmp_path / "lowered_handlers.py").write_text(HANDLER)
    broker = start_broker("lowered")
    with broker.client() as client:
        client.put_topic("lowered", read_queue_nums=1, write_queue_nums=1)
        client.send("lowered", "x" * size)
        await_dispatch(client)
    with (broker.log_path.parent / "broker.toml").open("a") as file:
        file.write(f"[limits]\n{limits}")
    broker.restart()
    more = {"topics": ("lowered",), "endpoint": broker.endpoint}
    retries = {"max_reconsume_times": 1, "retry_delays": "1s"}
    group = available_now("lowered-g", "lowered_handlers:handle", tmp_path, **more, **retries)
    with broker.client() as client:
        with pytest.raises(InvalidRequest, match=r"MESSAGE_TOO_LARGE|REQUEST_TOO_LARGE"):
            client.send("lowered", "x" * size)
        consume(group, lambda: spark)
        assert client.pull("%RETRY%lowered-g", 0, 0, wait_ms=30_000).messages
        consume(group, lambda: spark)
        (dead,) = client.pull("%DLQ%lowered-g", 0, 0).messages
    assert dead.body == b"x" * size
    found = LedgerReader(tmp_path / "ledger").sql("SELECT verdict FROM deliveries ORDER BY attempt")
    assert found.column("verdict").to_pylist() == ["RETRY", "DEAD"]


STUMBLES = """
def handle(message):
    if message.attempt == 1:
        raise ValueError("at first")
"""


def test_a_retry_that_never_came_back_is_sent_again_once_it_is_late(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    """No reactions run here: the ledger has the failed attempt, and no broker its retry."""
    (tmp_path / "stumbling_handlers.py").write_text(STUMBLES)
    group = f"lost-{uuid4().hex[:12]}"
    more: dict[str, Any] = {"available_now": False, "trigger": TRIGGER}
    chosen = available_now(group, "stumbling_handlers:handle", tmp_path, **more)
    chosen.ledger.create(*TABLES)
    reader = LedgerReader(tmp_path / "ledger")

    def attempts() -> list[tuple[int, int, str]]:
        text = "SELECT queue_offset, attempt, verdict FROM deliveries ORDER BY 1, 2"
        return [tuple(row.values()) for row in reader.sql(text).to_pylist()]

    with shared_broker.client() as client:
        client.put_topic(group, read_queue_nums=1, write_queue_nums=1)
        client.put_group(group)
        client.send_many(group, [Message("a"), Message("b")])
        await_dispatch(client)
        failed = [(0, 1, "RETRY"), (1, 1, "RETRY")]
        soon = LATE - timedelta(minutes=1)
        driver = Driver(spark, client, chosen, tmp_path / "c", now=lambda: datetime.now(UTC) + soon)
        driver.wait_for(lambda: attempts() == failed)
        driver.stop()
        (again,) = client.queues(f"%RETRY%{group}")
        assert again.max_offset == 0, "it may still come"
        now: Callable[[], datetime] = lambda: datetime.now(UTC) + 2 * LATE  # noqa: E731
        to_all = replace(chosen, mode="broadcast", checkpoint=tmp_path / "b")
        policy = retry_policy(client, to_all)
        broadcast = GroupJob(spark, to_all, policy, client, BatchGate(), None, now=now)
        assert broadcast.look_for_lost_retries() == 0, "there are no retries in that mode"
        assert client.queues(f"%RETRY%{group}") == [again]
        driver = Driver(spark, client, chosen, tmp_path / "c", now=now)
        done = [(0, 1, "RETRY"), (0, 2, "ACK"), (1, 1, "RETRY"), (1, 2, "ACK")]
        driver.wait_for(lambda: attempts() == done)
        driver.stop()


def test_a_group_goes_on_without_a_retry_topic_that_is_deleted_while_it_runs(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    """With --on-data-loss record: nobody can leave that topic out, and its retries are in the ledger."""
    (tmp_path / "stumbling_handlers.py").write_text(STUMBLES)
    group = f"gone-{uuid4().hex[:12]}"
    more: dict[str, Any] = {"available_now": False, "trigger": TRIGGER, "on_data_loss": "record"}
    chosen = available_now(group, "stumbling_handlers:handle", tmp_path, **more)
    chosen.ledger.create(*TABLES)
    reader = LedgerReader(tmp_path / "ledger")

    def attempts() -> list[tuple[int, int, str]]:
        text = "SELECT queue_offset, attempt, verdict FROM deliveries ORDER BY 1, 2"
        return [tuple(row.values()) for row in reader.sql(text).to_pylist()]

    with shared_broker.client() as client:
        client.put_topic(group, read_queue_nums=1, write_queue_nums=1)
        client.put_group(group)
        client.send(group, "a")
        await_dispatch(client)
        driver = Driver(spark, client, chosen, tmp_path / "c")
        driver.wait_for(lambda: attempts() == [(0, 1, "RETRY")])
        client.delete_topic(f"%RETRY%{group}")
        client.send(group, "b")
        driver.wait_for(lambda: attempts() == [(0, 1, "RETRY"), (1, 1, "RETRY")])
        driver.stop()
        client.put_group(group)  # as each start does
        driver = Driver(spark, client, chosen, tmp_path / "c", now=lambda: datetime.now(UTC) + 2 * LATE)
        done = [(0, 1, "RETRY"), (0, 2, "ACK"), (1, 1, "RETRY"), (1, 2, "ACK")]
        driver.wait_for(lambda: attempts() == done)
        driver.stop()


def test_a_broker_that_takes_nothing_holds_up_no_start_for_lost_retries(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(*TABLES)
    append(ledger, DELIVERIES, [delivery(0, verdict="RETRY", body=b"x", properties=[])])
    began = time.monotonic()
    with pytest.raises(PySparkException, match="no connection"):
        send_again(spark, ledger, "g", "http://127.0.0.1:1", [("orders", "broker-a", 0, 0, 1)])
    assert time.monotonic() - began < 60, "two minutes a try, where nobody says otherwise"
