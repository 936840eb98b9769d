"""`lakemq group skip` beside a group that runs: a real broker, real Spark, real Delta.

Contract: the handler is never called for a message once it is given up; its next attempt has one row, DEAD
with who gave it up and why, and it is a dead letter as any other, which a replay brings back; in an orderly
group its lane goes on. What no skip is about is handled as ever.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from delta_tables.ledger_query import select
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.frames.frame_handler import FrameHandler
from jobs.group.fence import application
from jobs.handler.loader import HandlerTarget
from jobs.operator import operator_name
from jobs.settings import ConsumeSettings
from lakemq import Message
from lakemq.cli.app import main
from tests.support.broker_process import BrokerProcess
from tests.support.consume_steps import consume_while
from tests.support.dispatch_barrier import await_dispatch
from tests.support.ledger_rows import path_ledger, report
from tests.support.spark_streams import TRIGGER
from tests.support.waiting import wait_until

HANDLERS = """
import os

def note(message):
    with open(os.path.join({directory!r}, "calls"), "a") as calls:
        calls.write(f"{{message.text}} {{message.attempt}}\\n")

def fails(message):
    note(message)
    if message.text.startswith("bad") and not os.path.exists(os.path.join({directory!r}, "mended")):
        raise ValueError("no such customer")
"""
SPARK_S = 120.0
REASON = "the customer never was"


class Group:
    """A group whose handler fails for messages that begin with `bad`, until it is mended.

    Args:
        broker: The broker.
        home: Of the ledger, the handler, and what this notes.
        name: Of the group and its topic.
        changes: Of the settings.
    """

    def __init__(self, broker: BrokerProcess, home: Path, name: str, **changes: Any) -> None:
        self.broker, self.home, self.name, self.ledger = broker, home, name, home / "ledger"
        module = f"skipping_{name.replace('-', '_')}"
        (home / f"{module}.py").write_text(HANDLERS.format(directory=str(home)))
        given: dict[str, Any] = {
            "group": name,
            "topics": (name,),
            "handler": HandlerTarget(f"{module}:fails", "auto", (str(home),)),
            "ledger": ledger_at(str(self.ledger)),
            "endpoint": broker.endpoint,
            "start": "earliest",
            "trigger": TRIGGER,
        }
        self.settings = ConsumeSettings(**(given | changes))
        with broker.client() as client:
            client.put_topic(name, read_queue_nums=1, write_queue_nums=1)

    def post(self, *texts: str, tags: str | None = None) -> None:
        """Sends messages to the queue."""
        with self.broker.client() as client:
            client.send_many(self.name, [Message(text, queue_id=0, tags=tags) for text in texts])
            await_dispatch(client)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """A query's rows."""
        return [tuple(row.values()) for row in LedgerReader(self.ledger).sql(text).to_pylist()]

    def await_rows(self, text: str, wanted: list[tuple[Any, ...]]) -> None:
        """Waits for a query to have these rows."""
        wait_until(lambda: self.rows(text) == wanted, SPARK_S, lambda: str(self.rows(text)))

    def calls(self) -> list[tuple[str, int]]:
        """The calls of the handler: text and attempt."""
        lines = (self.home / "calls").read_text().splitlines()
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def command(self, offset: int, *more: str) -> list[str]:
        """The command that gives up the message at an offset."""
        where = ["--topic", self.name, "--queue", "0", "--offset", str(offset), "--ledger", str(self.ledger)]
        where += ["--endpoint", self.broker.endpoint, "--reason", REASON]
        return ["group", "skip", self.name, *where, *more]

    def skip(self, offset: int) -> None:
        """Gives up the message at an offset."""
        assert main(self.command(offset, "--execute")) == 0

    def check(self, states: list[str]) -> None:
        """One row per attempt, nothing waits, and what was given up says so."""
        for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "parked_messages"):
            assert self.rows(f"SELECT * FROM {view}") == [], view
        found = self.rows("SELECT state FROM delivery_history ORDER BY queue_offset")
        assert found == [(state,) for state in states]
        said = f"skipped by {operator_name()}: {REASON}"
        assert {row[0] for row in self.rows("SELECT reason FROM dead_letters")} == {said}


HEADS = "SELECT count(*) > 1 FROM deliveries WHERE queue_offset = {} AND verdict = 'RETRY'"


@pytest.mark.nightly
def test_an_orderly_group_that_stands_on_a_message_goes_on_when_that_is_given_up_and_a_replay_brings_it_back(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(shared_broker, tmp_path, "skip-orderly", mode="orderly")
    group.post("bad-0", "1", "2", "bad-3", "4", "5")

    def steps() -> None:
        group.await_rows(HEADS.format(0), [(True,)])  # attempts without a limit
        assert main(group.command(0, "--format", "json")) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["state"], found["parked_behind"], found["last_error"]) == (
            *("RETRY", 5),
            "ValueError: no such customer",
        )
        assert group.rows("SELECT * FROM skipped_messages") == []
        group.skip(3)  # parked: given up when its turn has come
        group.skip(0)
        done = "SELECT queue_offset FROM deliveries WHERE verdict IN ('ACK', 'DEAD') ORDER BY 1"
        group.await_rows(done, [(offset,) for offset in range(6)])
        landed = "SELECT queue_offset FROM dead_letters ORDER BY 1"
        group.await_rows(landed, [(0,), (3,)])
        assert main(group.command(0)) == 1
        assert "message" in (said := capsys.readouterr().err)
        assert "is given up already at attempt" in said
        (tmp_path / "mended").touch()
        replay = ["dlq", "replay", "--group", group.name, "--ledger", str(group.ledger)]
        assert main([*replay, "--endpoint", shared_broker.endpoint, "--execute"]) == 0
        group.await_rows(
            "SELECT queue_offset FROM delivery_history WHERE state = 'ACK' ORDER BY 1",
            [(offset,) for offset in range(6)],
        )

    consume_while(group.settings, spark, steps)
    group.check(["ACK"] * 6)
    calls = group.calls()
    assert [text for text, _ in calls if not text.startswith("bad")] == ["1", "2", "4", "5"]
    attempts = dict(group.rows("SELECT queue_offset, attempt FROM deliveries WHERE verdict = 'DEAD'"))
    assert attempts[3] == 1
    assert ("bad-0", attempts[0]) not in calls
    assert ("bad-3", 1) not in calls
    assert {("bad-0", attempts[0] + 1), ("bad-3", 2)} <= set(calls), "the replays are handled"
    held = group.rows("SELECT started_at < finished_at FROM deliveries WHERE verdict = 'DEAD'")
    assert held == [(False,), (False,)]


def test_a_pending_retry_and_a_message_that_was_not_handled_yet_are_given_up_by_the_group_that_runs(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(shared_broker, tmp_path, "skip-concurrent", retry_delays="10s", max_reconsume_times=99)
    group.post("bad-0", "1")

    def steps() -> None:
        group.await_rows(
            "SELECT queue_offset, verdict FROM deliveries ORDER BY 1", [(0, "RETRY"), (1, "ACK")]
        )
        group.skip(0)
        assert "when attempt 2 comes, due at " in capsys.readouterr().out
        group.await_rows(
            "SELECT queue_offset, attempt, verdict FROM deliveries WHERE queue_offset = 0 ORDER BY attempt",
            [(0, 1, "RETRY"), (0, 2, "DEAD")],
        )
        group.await_rows("SELECT queue_offset FROM dead_letters", [(0,)])

    consume_while(group.settings, spark, steps)
    group.post("bad-2", "3")  # nobody runs: it is not handled yet
    group.skip(2)
    assert "when the group comes to it" in capsys.readouterr().out
    consume(ConsumeSettings(**{**vars(group.settings), "until_idle_s": 0.5}), lambda: spark)
    group.check(["DEAD", "ACK", "DEAD", "ACK"])
    assert sorted(group.calls()) == [("1", 1), ("3", 1), ("bad-0", 1)]
    columns = "queue_offset, attempts, first_attempt_at <= last_attempt_at"
    letters = group.rows(f"SELECT {columns} FROM dead_letters ORDER BY 1")
    assert letters == [(0, 2, True), (2, 1, True)]


@pytest.mark.nightly
def test_a_function_of_dataframes_does_not_see_a_message_that_is_given_up(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    seen: list[str] = []

    def judge(messages: DataFrame) -> DataFrame:
        seen.extend(row.text for row in messages.select(F.col("body").cast("string").alias("text")).collect())
        return messages.withColumn("verdict", F.lit("ACK"))

    group = Group(
        *(shared_broker, tmp_path, "skip-frames"), handler=FrameHandler("judge", judge), until_idle_s=0.5
    )
    group.post("0")
    consume(group.settings, lambda: spark)
    group.post("1", "2")
    group.skip(1)
    consume(group.settings, lambda: spark)
    assert seen == ["0", "2"]
    group.check(["ACK", "DEAD", "ACK"])


@pytest.mark.nightly
def test_a_row_that_sql_inserts_into_a_ledger_in_a_catalog_does_the_same(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    schema = "spark_catalog.ledger_with_skips"
    spark.sql(f"CREATE SCHEMA {schema}")
    try:
        ledger = ledger_at(schema)
        changes: dict[str, Any] = {"ledger": ledger, "checkpoint": tmp_path / "checkpoint"}
        group = Group(shared_broker, tmp_path, "skip-catalog", until_idle_s=0.5, **changes)
        group.post("0")
        consume(group.settings, lambda: spark)
        named = "consumer_group, topic, broker_name, queue_id"
        spark.sql(
            f"INSERT INTO {schema}.skipped_messages ({named}, queue_offset, operator, reason) "
            f"SELECT {named}, 1, 'anna', 'no use' FROM {schema}.deliveries"
        )
        group.post("1", "2")
        consume(group.settings, lambda: spark)
        text = "SELECT queue_offset, verdict, reason FROM deliveries ORDER BY 1"
        skipped = (1, "DEAD", "skipped by anna: no use")
        assert select(ledger, text, spark) == [(0, "ACK", None), skipped, (2, "ACK", None)]
        assert select(ledger, "SELECT queue_offset FROM dead_letters", spark) == [(1,)]
        assert sorted(group.calls()) == [("0", 1), ("2", 1)]
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_a_position_that_the_queue_does_not_hold_or_the_groups_tags_leave_out_is_refused(
    shared_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(shared_broker, tmp_path, "skip-places")
    group.post("0", "1", tags="A")
    group.post("2", tags="B")
    ledger = path_ledger(group.ledger)
    ledger.create(DELIVERIES)
    nothing = pa.Table.from_pylist([], schema=DELIVERIES.arrow_schema)
    ledger.append_arrow(nothing, DELIVERIES, app_id=application(group.name), version=1)
    with shared_broker.client() as client:
        name = str(client.cluster()["broker_name"])
    report(ledger, 0, 1, group=group.name, subscription="A", topic=group.name, broker_name=name)

    def refused(offset: int, *more: str) -> str:
        assert main(group.command(offset, "--execute", *more)) == 1
        return capsys.readouterr().err

    assert "has passed it without an attempt" in refused(0)
    assert "the tags 'A' of group skip-places leave it out" in refused(2)
    assert "the queue holds offsets 0 to 2, and no such message" in refused(3)
    assert "has not read that queue with this ledger: skip-places, broker nobody" in refused(
        1, "--broker", "nobody"
    )
    assert group.rows("SELECT * FROM skipped_messages") == []
    group.skip(1)
    assert "not handled yet" in capsys.readouterr().out
    (found,) = group.rows("SELECT broker_name, queue_offset, attempts FROM skipped_messages")
    assert found == (name, 1, 0)
