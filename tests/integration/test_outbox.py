"""Verdicts that send messages: consume, transform, produce, with a real broker and Spark.

Contract: each message that an acknowledged attempt sends is in its topic exactly once, also when a commit of
`sent_messages` fails before or after it, or the checkpoint of the stream is lost; the ledger says what was
sent and what it was sent for; what no verdict was recorded for is not sent.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.group_status import ledger_status
from delta_tables.ledger import ledger_at
from delta_tables.ledger_query import select
from delta_tables.ledger_reader import LedgerReader
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.views import register_views
from jobs.consume import consume
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from lakemq.cli.app import main
from lakemq.client import ReceivedMessage
from store_native.errors import InvalidRequest, LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.consume_steps import consume_while
from tests.support.dispatch_barrier import await_dispatch
from tests.support.faulty_ledger import CommitFaults, When, with_faults
from tests.support.spark_streams import TRIGGER
from tests.support.waiting import wait_until

HANDLER = """
from lakemq.handler import Outgoing, Verdict

def bill(message):
    number = int(message.text)
    if number % 10 == 3 and message.attempt == 1:
        raise ValueError("bank away")
    if number % 10 == 7:
        return Verdict.dead("negative amount")
    if number % 10 == 9:
        return None
    invoice = Outgoing(
        "{to}",
        {{"order": number}},
        keys=[str(number)],
        tags="made",
        properties={{"colour": "red"}},
        sharding_key=str(message.queue_id),
    )
    return Verdict.ack(send=[invoice, Outgoing("{to}-audit", f"order {{number}}")])
"""
ORDERS = 40
SPARK_S = 120.0


def is_billed(number: int) -> bool:
    return number % 10 not in (7, 9)


def orders_at(messages: list[ReceivedMessage]) -> list[int]:
    return [message.json()["order"] for message in messages]


def all_of(broker: BrokerProcess, topic: str) -> list[ReceivedMessage]:
    """What a topic holds, queue by queue."""
    found: list[ReceivedMessage] = []
    with broker.client() as client:
        await_dispatch(client)
        for queue in client.queues(topic):
            offset = 0
            while offset < queue.max_offset:
                pulled = client.pull(topic, queue.queue_id, offset, max=1000)
                found += pulled.messages
                offset = pulled.next_offset
    return found


class Group:
    """A group that bills orders, and what there has to be of it.

    Args:
        broker: The broker.
        home: Of ledger and handler.
        name: Of the group and its topics.
    """

    def __init__(self, broker: BrokerProcess, home: Path, name: str, **changes: Any) -> None:
        self.broker, self.invoices, self.orders = broker, f"{name}-invoices", f"{name}-orders"
        self.ledger, self.sent = home / "ledger", 0
        module = f"handlers_{name}"
        (home / f"{module}.py").write_text(HANDLER.format(to=self.invoices))
        given: dict[str, Any] = {
            "group": name,
            "topics": (self.orders,),
            "handler": HandlerTarget(f"{module}:bill", "auto", (str(home),)),
            "ledger": ledger_at(str(self.ledger)),
            "endpoint": broker.endpoint,
            "start": "earliest",
            "retry_delays": "1s",
            "trigger": TRIGGER,
            "send_to": (self.invoices, f"{self.invoices}-audit"),
            "until_idle_s": 0.2,
        }
        self.settings = ConsumeSettings(**(given | changes))
        with broker.client() as client:
            for topic in (self.orders, *self.settings.send_to):
                client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)

    def post(self, count: int = ORDERS) -> None:
        """Sends orders, to the queues in turn."""
        numbers = range(self.sent, self.sent + count)
        with self.broker.client() as client:
            client.send_many(self.orders, [Message(str(number), queue_id=number % 2) for number in numbers])
            await_dispatch(client)
        self.sent += count

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """A query's rows."""
        return [tuple(row.values()) for row in LedgerReader(self.ledger).sql(text).to_pylist()]

    def check_done(self) -> None:
        """Each message once in its topic, one row for each, nothing waits."""
        billed = [number for number in range(self.sent) if is_billed(number)]
        invoices = all_of(self.broker, self.invoices)
        assert Counter(orders_at(invoices)) == Counter(billed)
        audit = [message.text for message in all_of(self.broker, f"{self.invoices}-audit")]
        assert Counter(audit) == Counter(f"order {number}" for number in billed)
        sent = self.rows("SELECT number, sent_message_id FROM sent_messages WHERE number = 1")
        assert sorted(row[1] for row in sent) == sorted(message.message_id for message in invoices)
        assert self.rows("SELECT count(*) FROM sent_messages") == [(2 * len(billed),)]
        assert self.rows("SELECT sum(sends) FROM deliveries") == [(2 * len(billed),)]
        for view in ("pending_sends", "pending_retries", "pending_dead_letters", "duplicate_deliveries"):
            assert self.rows(f"SELECT * FROM {view}") == [], view


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.nightly)])
def test_what_acknowledged_messages_send_is_sent_once_and_the_ledger_says_for_what(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, isolation: Any
) -> None:
    group = Group(shared_broker, tmp_path, f"billing-{isolation}", host=HandlerHost(isolation=isolation))
    group.post()
    consume(group.settings, lambda: spark)
    group.check_done()

    invoices = {message.json()["order"]: message for message in all_of(shared_broker, group.invoices)}
    seventeenth = invoices[18]
    ((cause,),) = group.rows("SELECT message_id FROM deliveries WHERE queue_offset = 9 AND queue_id = 0")
    assert (seventeenth.keys, seventeenth.tags) == (("18",), "made")
    assert dict(seventeenth.properties) == {
        "colour": "red",
        "LMQ_CAUSE": cause,
        "LMQ_CAUSE_GROUP": group.settings.group,
    }
    question = (
        f"SELECT sent_topic, sent_message_id FROM sent_messages WHERE message_id = '{cause}' ORDER BY 1"
    )
    answer = group.rows(question)
    assert answer[0] == (group.invoices, seventeenth.message_id)
    register_views(spark, str(group.ledger))
    assert [tuple(row) for row in spark.sql(question).collect()] == answer
    once_only = [message for message in invoices.values() if message.json()["order"] % 10 != 3]
    for queue in (0, 1):  # orders of one queue have one sharding key: their invoices are in their order
        numbers = orders_at([message for message in once_only if message.json()["order"] % 2 == queue])
        assert numbers == sorted(numbers)


@pytest.mark.nightly
def test_a_failed_or_unanswered_commit_and_a_lost_checkpoint_send_nothing_twice(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    faults = CommitFaults()
    ledger = with_faults(ledger_at(str(tmp_path / "ledger")), faults)
    group = Group(shared_broker, tmp_path, "faulty", ledger=ledger)
    outbox = group.settings.checkpoint_of("outbox")

    def fail(when: When) -> None:
        group.post(10)
        faults.arm(SENT_MESSAGES, 2, when)  # the first sets the fence
        with pytest.raises(LakeMQError, match=f"{when} the commit to sent_messages"):
            consume(group.settings, lambda: spark)

    fail("before")
    assert group.rows("SELECT * FROM sent_messages") == []
    assert len(all_of(shared_broker, group.invoices)) > 0, "it was sent, and is not recorded"
    fail("after")
    assert group.rows("SELECT count(*) FROM sent_messages") != [(0,)]
    fail("before")
    shutil.rmtree(outbox)
    group.post(10)
    consume(group.settings, lambda: spark)
    group.check_done()

    shutil.rmtree(outbox)  # all was sent: the next run begins behind it, or with what it knows
    group.post(10)
    consume(group.settings, lambda: spark)
    group.check_done()


def test_a_run_of_what_is_available_sends_it_and_a_later_one_what_was_left(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    faults = CommitFaults()
    ledger = with_faults(ledger_at(str(tmp_path / "ledger")), faults)
    settings: dict[str, Any] = {"ledger": ledger, "available_now": True, "until_idle_s": None}
    group = Group(shared_broker, tmp_path, "scheduled", **settings)
    group.post(3)
    consume(group.settings, lambda: spark)
    group.check_done()

    group.post(3)
    faults.arm(SENT_MESSAGES, 2, "before")
    with pytest.raises(LakeMQError, match="before the commit"):
        consume(group.settings, lambda: spark)
    assert len(group.rows("SELECT * FROM pending_sends")) == 2
    # What was decided is sent, also by a group that sends no more.
    later = ConsumeSettings(**{**vars(group.settings), "send_to": ()})
    consume(later, lambda: spark)
    assert group.rows("SELECT * FROM pending_sends") == []
    assert Counter(orders_at(all_of(shared_broker, group.invoices))) == Counter([0, 1, 2, 4, 5])
    consume(later, lambda: spark)
    assert not group.settings.checkpoint_of("outbox").exists()


@pytest.mark.nightly
def test_a_group_with_its_ledger_in_a_catalog_sends_once_too(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    schema = "spark_catalog.ledger_with_outbox"
    spark.sql(f"CREATE SCHEMA {schema}")
    try:
        faults = CommitFaults()
        ledger = with_faults(ledger_at(schema), faults)
        changes: dict[str, Any] = {"ledger": ledger, "checkpoint": tmp_path / "checkpoint"}
        group = Group(shared_broker, tmp_path, "catalogued", **changes)
        group.post(3)
        faults.arm(SENT_MESSAGES, 2, "before")
        with pytest.raises(LakeMQError, match="before the commit to sent_messages"):
            consume(group.settings, lambda: spark)
        group.post(3)
        consume(group.settings, lambda: spark)
        assert Counter(orders_at(all_of(shared_broker, group.invoices))) == Counter(range(6))
        text = "SELECT number, count(*) FROM sent_messages GROUP BY number ORDER BY number"
        assert select(ledger, text, spark) == [(1, 6), (2, 6)]
        assert select(ledger, "SELECT * FROM pending_sends", spark) == []
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.nightly
def test_what_a_broker_refuses_waits_and_is_said_and_the_group_goes_on(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(shared_broker, tmp_path, "refused", until_idle_s=None)
    audit = f"{group.invoices}-audit"
    command = ["outbox", "discard", "--group", "refused", "--ledger", str(group.ledger), "--reason", "a test"]

    def await_rows(text: str, wanted: list[tuple[Any, ...]]) -> None:
        wait_until(lambda: group.rows(text) == wanted, SPARK_S, lambda: str(group.rows(text)))

    def refuse_then(first: int) -> None:
        """Posts twice while the topic takes nothing: the second time the outbox waits already."""
        with shared_broker.client() as client:
            client.put_topic(audit, perm=4)
        group.post(10)
        refused = "SELECT count(DISTINCT code) FROM pending_sends WHERE code = 'NO_PERMISSION'"
        await_rows(refused, [(1,)])
        group.post(10)
        handled = "SELECT count(*) FROM deliveries WHERE verdict IN ('ACK', 'DEAD')"
        await_rows(handled, [(first + 20,)])
        status = ledger_status(LedgerReader(group.ledger), "refused", datetime.now(UTC))
        assert status.refused_send is not None
        assert (status.refused_send.code, "not writable" in status.refused_send.error) == (
            "NO_PERMISSION",
            True,
        )

    def steps() -> None:
        refuse_then(0)
        with shared_broker.client() as client:
            client.put_topic(audit, perm=6)
        await_rows("SELECT count(*) FROM pending_sends", [(0,)])
        group.check_done()
        refuse_then(20)
        assert main([*command, "--where", f"sent_topic = '{audit}'"]) == 0
        assert group.rows("SELECT count(*) FROM discarded_sends") == [(0,)]
        assert main([*command, "--where", f"sent_topic = '{audit}'", "--execute"]) == 0
        await_rows("SELECT count(*) FROM pending_sends", [(0,)])

    consume_while(group.settings, spark, steps)
    billed = [number for number in range(40) if is_billed(number)]
    assert Counter(orders_at(all_of(shared_broker, group.invoices))) == Counter(billed)
    there = [message.text for message in all_of(shared_broker, audit)]
    assert Counter(there) == Counter(f"order {number}" for number in billed if number < 20)
    assert group.rows("SELECT count(*) FROM sent_messages") == [(16 + 32,)]
    assert group.rows("SELECT count(*) FROM discarded_sends") == [(16,)]
    assert "16 messages and rows that group refused sends are given up" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_refusal_whose_record_fails_holds_its_message_until_it_is_sent_once(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, when: When
) -> None:
    faults = CommitFaults()
    ledger = with_faults(ledger_at(str(tmp_path / "ledger")), faults)
    group = Group(shared_broker, tmp_path, f"record-{when}", ledger=ledger)
    with shared_broker.client() as client:
        client.put_topic(group.invoices, perm=4)
    group.post(3)
    faults.arm(REFUSED_SENDS, 2, when)  # the first sets the fence
    with pytest.raises(LakeMQError, match=f"{when} the commit to refused_sends"):
        consume(group.settings, lambda: spark)
    recorded = group.rows("SELECT DISTINCT code FROM refused_sends")
    assert recorded == ([] if when == "before" else [("NO_PERMISSION",)])
    assert group.rows("SELECT sum(waiting) FROM pending_sends") == [(6,)]
    with shared_broker.client() as client:
        client.put_topic(group.invoices, perm=6)
    consume(group.settings, lambda: spark)
    group.check_done()


@pytest.mark.nightly
def test_runs_that_end_by_themselves_say_what_a_broker_refuses(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(shared_broker, tmp_path, "ending")
    with shared_broker.client() as client:
        client.put_topic(group.invoices, perm=4)
    group.post(3)
    monkeypatch.setattr("jobs.runtime.hold_up.LEFT_OUT_S", 0.5)
    with pytest.raises(
        LakeMQError, match=r"nothing left to do but to send.*NO_PERMISSION.*lakemq outbox discard"
    ):
        consume(group.settings, lambda: spark)
    now = replace(group.settings, available_now=True, until_idle_s=None)
    with pytest.raises(LakeMQError, match=r"'ending outbox' failed.*NO_PERMISSION.*not writable"):
        consume(now, lambda: spark)
    assert group.rows("SELECT sum(waiting) FROM pending_sends") == [(6,)], "nothing overtakes"
    with shared_broker.client() as client:
        client.put_topic(group.invoices, perm=6)
    consume(now, lambda: spark)
    group.check_done()


def test_a_message_that_brokers_do_not_take_is_refused_at_the_verdict(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker("strict", config="[limits]\nmax_message_bytes = 1000\n")
    group = Group(broker, tmp_path, "strict", available_now=True, until_idle_s=None, max_reconsume_times=0)
    handler = tmp_path / "long_invoices.py"
    text = HANDLER.format(to=group.invoices)
    handler.write_text(text.replace('"order": number', '"order": number, "x": "x" * 1000 * number'))
    target = HandlerTarget("long_invoices:bill", "auto", (str(tmp_path),))
    group.post(3)
    consume(replace(group.settings, handler=target), lambda: spark)
    assert orders_at(all_of(broker, group.invoices)) == [0]
    rows = group.rows("SELECT queue_offset, verdict, sends, reason FROM deliveries ORDER BY message_id")
    assert sorted(row[1] for row in rows) == ["ACK", "DEAD", "DEAD"]
    assert all("has 1,000 bytes at most, not" in row[3] for row in rows if row[1] == "DEAD")
    assert group.rows("SELECT * FROM pending_sends") == []


def test_a_topic_that_does_not_exist_is_named_before_anything_is_started(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    group = Group(shared_broker, tmp_path, "early")
    settings = ConsumeSettings(**{**vars(group.settings), "send_to": ("nowhere",)})

    def never() -> SparkSession:
        raise AssertionError("Spark was started")

    with pytest.raises(InvalidRequest, match=r"TOPIC_NOT_EXIST.*--send-to.*nowhere"):
        consume(settings, never)
