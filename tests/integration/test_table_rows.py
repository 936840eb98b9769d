"""Verdicts that write rows to users' Delta tables: consume, transform, produce, with a real broker and Spark.

Contract: each row that an acknowledged attempt writes is in its table exactly once, whatever commit fails,
also when the stream's checkpoint is lost; the ledger says what was written; a table that refuses holds up its
rows, not the group.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from delta_tables.user_tables.location import UserTable
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch

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
    return Verdict.ack(rows=[invoice, TableRow("audit", {"said": f"order {number}"})])
"""
INVOICES = pa.schema([pa.field("order", pa.int64(), nullable=False), pa.field("amount", pa.float64())])
AUDIT = pa.schema([pa.field("said", pa.string())])


class Group:
    """A group that bills orders, its tables, and what there has to be in them.

    Args:
        broker: The broker.
        home: Of ledger, handler and tables.
        name: Of the group and its topic.
    """

    def __init__(self, broker: BrokerProcess, home: Path, name: str, **changes: Any) -> None:
        self.broker, self.orders, self.posted = broker, f"{name}-orders", 0
        self.ledger, self.tables = home / "ledger", home / "tables"
        module = f"handlers_{name}"
        (home / f"{module}.py").write_text(HANDLER)
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
            "trigger": "100 milliseconds",
            "write_to": tuple(UserTable(each, str(self.tables / each)) for each in ("invoices", "audit")),
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
        assert Counter(self.column("audit", "said")) == Counter(f"order {number}" for number in billed)
        written = self.rows("SELECT table_name, count(*) FROM written_rows GROUP BY table_name ORDER BY 1")
        assert written == [("audit", len(billed)), ("invoices", len(billed))]
        assert self.rows("SELECT sum(writes) FROM deliveries") == [(2 * len(billed),)]
        for view in ("pending_sends", "pending_retries", "pending_dead_letters", "duplicate_deliveries"):
            assert self.rows(f"SELECT * FROM {view}") == [], view


def test_what_acknowledged_messages_write_is_in_the_table_once_and_a_bad_row_is_an_error_of_its_call(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    group = Group(shared_broker, tmp_path, "writing")
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
