"""Verdicts that write rows to users' Delta tables: consume, transform, produce, with a real broker and Spark.

Contract: each row that an acknowledged attempt writes is in its table exactly once, whatever commit fails,
also when the stream's checkpoint is lost; the ledger says what was written; a table that refuses holds up its
rows, not the group.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_query import select
from delta_tables.ledger_reader import LedgerReader
from delta_tables.user_tables.catalog_table import CatalogTable
from delta_tables.user_tables.path_table import PathTable
from delta_tables.written_rows import WRITTEN_ROWS
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.outbox.group_batches import group_batches
from jobs.settings import ConsumeSettings
from lakemq import Message
from lakemq.cli.app import main
from store_native.errors import InvalidRequest, LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.consume_steps import consume_while
from tests.support.dispatch_barrier import await_dispatch
from tests.support.faulty_ledger import CommitFaults, When, with_faults
from tests.support.spark_streams import TRIGGER
from tests.support.waiting import wait_until

HANDLER = """
from lakemq.handler import TableRow, Verdict

def bill(message):
    number = int(message.text)
    if number % 10 == 3 and message.attempt == 1:
        raise ValueError("bank away")
    if number % 10 == 7:
        return Verdict.ack(rows=TableRow("invoices", {"order": number, "amount": "9.5"}))
    if number % 10 == 9:
        return None
    invoice = TableRow("invoices", {"order": number, "amount": number / 2})
    audit = TableRow("audit", {"said": f"order {number}"})
    return Verdict.ack(rows=[invoice, audit][:TABLES])
"""
INVOICES = pa.schema([pa.field("order", pa.int64(), nullable=False), pa.field("amount", pa.float64())])
AUDIT = pa.schema([pa.field("said", pa.string())])
SPARK_S = 120.0


class Group:
    """A group that bills orders, its tables, and what there has to be in them.

    Args:
        broker: The broker.
        home: Of ledger, handler and tables.
        name: Of the group and its topic.
        tables: How many: invoices, or an audit too.
    """

    def __init__(
        self, broker: BrokerProcess, home: Path, name: str, *, tables: int = 2, **changes: Any
    ) -> None:
        self.names = ("invoices", "audit")[:tables]
        self.broker, self.orders, self.posted = broker, f"{name}-orders", 0
        self.ledger, self.tables = home / "ledger", home / "tables"
        module = f"handlers_{name}"
        (home / f"{module}.py").write_text(HANDLER.replace("TABLES", str(tables)))
        for table, schema in (("invoices", INVOICES), ("audit", AUDIT)):
            DeltaTable.create(str(self.tables / table), schema=schema)
        given: dict[str, Any] = {
            "group": name,
            "topics": (self.orders,),
            "handler": HandlerTarget(f"{module}:bill", "auto", (str(home),)),
            "ledger": ledger_at(str(self.ledger)),
            "endpoint": broker.endpoint,
            "start": "earliest",
            "retry_delays": "1s",
            "max_reconsume_times": 1,
            "trigger": TRIGGER,
            "write_to": tuple(PathTable(each, str(self.tables / each)) for each in self.names),
            "until_idle_s": 0.2,
        }
        self.settings = ConsumeSettings(**(given | changes))
        with broker.client() as client:
            client.put_topic(self.orders, read_queue_nums=2, write_queue_nums=2)

    def post(self, count: int) -> None:
        """Sends orders, to the queues in turn."""
        numbers = range(self.posted, self.posted + count)
        with self.broker.client() as client:
            client.send_many(self.orders, [Message(str(number), queue_id=number % 2) for number in numbers])
            await_dispatch(client)
        self.posted += count

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """A query's rows."""
        return [tuple(row.values()) for row in LedgerReader(self.ledger).sql(text).to_pylist()]

    def column(self, table: str, name: str) -> list[Any]:
        """A column of a user's table."""
        stored = pa.table(DeltaTable(str(self.tables / table)).to_pyarrow_table())
        values: list[Any] = stored.column(name).to_pylist()
        return values

    def check_done(self) -> None:
        """Each row once in its table, one row of the ledger for each, nothing waits."""
        billed = [number for number in range(self.posted) if number % 10 not in (7, 9)]
        assert Counter(self.column("invoices", "order")) == Counter(billed)
        said = [f"order {number}" for number in billed if "audit" in self.names]
        assert Counter(self.column("audit", "said")) == Counter(said)
        written = self.rows("SELECT table_name, count(*) FROM written_rows GROUP BY table_name ORDER BY 1")
        assert written == [(name, len(billed)) for name in sorted(self.names)]
        assert self.rows("SELECT sum(writes) FROM deliveries") == [(len(self.names) * len(billed),)]
        for view in ("pending_sends", "pending_retries", "pending_dead_letters", "duplicate_deliveries"):
            assert self.rows(f"SELECT * FROM {view}") == [], view


def test_what_acknowledged_messages_write_is_in_the_table_once_and_a_bad_row_is_an_error_of_its_call(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    group = Group(shared_broker, tmp_path, "writing")
    audit = "spark_catalog.default.audit_of_writing"
    spark.sql(f"CREATE TABLE {audit} USING delta LOCATION '{group.tables / 'audit'}'")
    group.settings = replace(
        group.settings, write_to=(group.settings.write_to[0], CatalogTable("audit", audit))
    )
    group.post(20)
    consume(group.settings, lambda: spark)
    group.check_done()
    assert (
        dict(zip(group.column("invoices", "order"), group.column("invoices", "amount"), strict=True))[8]
        == 4.0
    )
    refused = group.rows(
        "SELECT DISTINCT verdict, reason FROM deliveries WHERE verdict <> 'ACK' AND error_type IS NULL"
    )
    said = "row 1, for invoices: amount: a number, not str"
    assert sorted(refused) == [("DEAD", said), ("RETRY", said)]
    spark.sql(f"DROP TABLE {audit}")
    spark.sql(f"CREATE TABLE {audit} (said STRING) USING delta")
    try:
        another = rf"write-to audit: the table at {audit} is not the one that the group has written to"
        with pytest.raises(InvalidRequest, match=another):
            consume(group.settings, lambda: spark)
    finally:
        spark.sql(f"DROP TABLE {audit}")
    with pytest.raises(InvalidRequest, match=rf"--write-to audit: there is no Delta table {audit}"):
        consume(group.settings, lambda: spark)


@pytest.mark.nightly
def test_a_failed_or_unanswered_commit_and_a_lost_checkpoint_write_nothing_twice(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    faults = CommitFaults()
    ledger = with_faults(ledger_at(str(tmp_path / "ledger")), faults)
    group = Group(shared_broker, tmp_path, "written-faulty", tables=1, ledger=ledger)

    def fail(when: When) -> None:
        group.post(10)
        faults.arm(WRITTEN_ROWS, 2, when)  # the first sets the fence
        with pytest.raises(LakeMQError, match=f"{when} the commit to written_rows"):
            consume(group.settings, lambda: spark)

    fail("before")
    assert group.rows("SELECT * FROM written_rows") == []
    assert group.column("invoices", "order") + group.column("audit", "said") != [], (
        "written, and not recorded"
    )
    fail("after")
    assert group.rows("SELECT count(*) FROM written_rows") != [(0,)]
    fail("before")
    shutil.rmtree(group.settings.checkpoint_of("rows-invoices"))
    group.post(10)
    consume(group.settings, lambda: spark)
    group.check_done()


def test_a_table_that_refuses_holds_up_its_rows_and_neither_the_group_nor_another_table(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(shared_broker, tmp_path, "refusing", until_idle_s=None)
    invoices = str(group.tables / "invoices")
    DeltaTable(invoices).alter.add_constraint({"small": "amount < 2"})

    def await_rows(text: str, wanted: list[tuple[Any, ...]]) -> None:
        wait_until(lambda: group.rows(text) == wanted, SPARK_S, lambda: str(group.rows(text)))

    def steps() -> None:
        group.post(3)
        await_rows("SELECT count(*) FROM written_rows", [(6,)])
        group.post(3)  # orders 3, 4, 5: of 2.0 and 2.5 the table takes none
        await_rows("SELECT count(DISTINCT code) FROM pending_sends WHERE code = 'TABLE_REFUSED'", [(1,)])
        await_rows("SELECT count(*) FROM written_rows WHERE table_name = 'audit'", [(6,)])
        assert sorted(group.column("invoices", "order")) in ([0, 1, 2], [0, 1, 2, 3])
        ((error,),) = group.rows("SELECT DISTINCT error FROM pending_sends WHERE code IS NOT NULL")
        assert "CHECK constraint small (amount < 2) violated by row with values" in error
        command = ["outbox", "discard", "--group", "refusing", "--ledger", str(group.ledger)]
        assert (
            main([*command, "--reason", "a test", "--where", "row_json LIKE '%\"amount\":2.%'", "--execute"])
            == 0
        )
        await_rows("SELECT count(*) FROM pending_sends", [(0,)])

    consume_while(group.settings, spark, steps)
    assert sorted(group.column("invoices", "order")) == [0, 1, 2, 3]
    assert "2 messages and rows that group refusing sends are given up" in capsys.readouterr().out
    assert group.rows("SELECT count(*) FROM written_rows") == [(4 + 6,)]


def test_a_start_is_refused_that_names_no_table_or_leaves_out_one_that_rows_wait_for(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    group = Group(shared_broker, tmp_path, "unnamed", available_now=True, until_idle_s=None)

    def never() -> SparkSession:
        raise AssertionError("Spark was started")

    nowhere = replace(group.settings, write_to=(PathTable("invoices", str(tmp_path / "nowhere")),))
    with pytest.raises(
        InvalidRequest, match=r"TABLE_NOT_EXIST: --write-to invoices: there is no Delta table"
    ):
        consume(nowhere, never)
    assert not (tmp_path / "nowhere").exists()

    group.post(1)
    shutil.move(group.tables / "audit", tmp_path / "away")
    with pytest.raises(InvalidRequest, match="TABLE_NOT_EXIST"):
        consume(group.settings, never)
    shutil.move(tmp_path / "away", group.tables / "audit")
    DeltaTable(str(group.tables / "audit")).alter.add_constraint({"none": "said = ''"})
    with pytest.raises(LakeMQError, match=r"TABLE_REFUSED.*CHECK constraint none"):
        consume(group.settings, lambda: spark)
    with pytest.raises(InvalidRequest, match=r"rows that verdicts of unnamed write wait for audit: name it"):
        consume(replace(group.settings, write_to=group.settings.write_to[:1]), lambda: spark)
    DeltaTable(str(group.tables / "audit")).alter.drop_constraint("none")
    consume(group.settings, lambda: spark)
    group.check_done()


@pytest.mark.nightly
def test_a_group_with_its_ledger_in_a_catalog_writes_once_too(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    schema = "spark_catalog.ledger_with_rows"
    spark.sql(f"CREATE SCHEMA {schema}")
    try:
        faults = CommitFaults()
        ledger = with_faults(ledger_at(schema), faults)
        changes: dict[str, Any] = {"ledger": ledger, "checkpoint": tmp_path / "checkpoint"}
        group = Group(shared_broker, tmp_path, "written-catalogued", tables=1, **changes)
        group.post(3)
        faults.arm(WRITTEN_ROWS, 2, "before")
        with pytest.raises(LakeMQError, match="before the commit to written_rows"):
            consume(group.settings, lambda: spark)
        with pytest.raises(InvalidRequest, match="wait for invoices: name it with --write-to"):
            consume(replace(group.settings, write_to=()), lambda: spark)
        group.post(3)
        consume(group.settings, lambda: spark)
        assert sorted(group.column("invoices", "order")) == [*range(6)]
        assert select(ledger, "SELECT count(*) FROM written_rows", spark) == [(6,)]
        assert select(ledger, "SELECT * FROM pending_sends", spark) == []
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_batches_of_a_query_come_by_their_numbers_whatever_the_workers_clocks_say(
    spark: SparkSession,
) -> None:
    """A table leaves out a batch that comes behind a later one."""
    noon = datetime(2026, 11, 28, 12, tzinfo=UTC)
    times = {("b", 0): 5, ("a", 0): 60, ("a", 1): 0, ("a", 2): 90, ("b", 1): 4}
    rows = [(*batch, noon + timedelta(minutes=minutes)) for batch, minutes in times.items()]
    found = group_batches(
        spark.createDataFrame(rows, "query_id STRING, batch_id BIGINT, finished_at TIMESTAMP")
    )
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
