"""The driver is killed (-9) around the writing of verdicts' rows: before it, after it, after its record.

Contract: each row of an acknowledged attempt is in the user's table exactly once, and the ledger has one row
for each, whatever was killed, also when the stream's checkpoint is lost with the driver. The run after the
last kill is this process's own.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
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
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

BATCH = 300
HANDLER = """
from lakemq.handler import TableRow, Verdict

def handle(message):
    number = int(message.text)
    if number % 50 == 0 and message.attempt == 1:
        raise ValueError("at first")
    return Verdict.ack(rows=TableRow("invoices", {"order": number, "amount": number / 2}))
"""


@dataclass(frozen=True)
class Kill:
    """Where the driver is killed: a commit by its table and number (the first sets the fence), and its side.

    Attributes:
        written: Whether rows are in the user's table then.
        recorded: Whether the ledger says so.
        loses_checkpoint: Whether the stream's checkpoint goes with the driver.
    """

    commit: tuple[str, str, str]
    written: bool
    recorded: bool
    loses_checkpoint: bool = False


OUTCOME_COMMITTED = Kill(("deliveries", "2", "after"), written=False, recorded=False)
WRITTEN = Kill(("written_rows", "2", "before"), written=True, recorded=False)
WRITTEN_AND_LOST = Kill(("written_rows", "2", "before"), written=True, recorded=True, loses_checkpoint=True)
RECORDED = Kill(
    ("written_rows", "2", "after"), written=True, recorded=True
)  # Spark's checkpoint does not know


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param((WRITTEN,), id="once"),
        pytest.param(
            (OUTCOME_COMMITTED, WRITTEN, RECORDED, WRITTEN_AND_LOST),
            id="everywhere",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_driver_killed_around_the_writing_writes_each_row_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, kills: tuple[Kill, ...]
) -> None:
    client = broker.client()
    client.put_topic("orders", read_queue_nums=4, write_queue_nums=4)
    # A name of its own: workers that have run another test of this session know its modules.
    (tmp_path / "write_rows.py").write_text(HANDLER)
    ledger, table = tmp_path / "ledger", tmp_path / "invoices"
    schema = pa.schema([pa.field("order", pa.int64(), nullable=False), pa.field("amount", pa.float64())])
    DeltaTable.create(str(table), schema=schema)
    arguments = (
        *("--group", "g", "--topic", "orders", "--write-to", "invoices=invoices", "--from", "earliest"),
        *("--handler", "write_rows:handle", "--ledger", "ledger", "--endpoint", broker.endpoint),
        *("--retry-delays", "1s", "--available-now"),
    )
    settings = ConsumeSettings(
        group="g",
        topics=("orders",),
        handler=HandlerTarget("write_rows:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(ledger)),
        endpoint=broker.endpoint,
        start="earliest",
        retry_delays="1s",
        trigger="200 milliseconds",
        write_to=(UserTable("invoices", str(table)),),
        until_idle_s=0.5,
    )

    def post(first: int) -> None:
        client.send_many("orders", [Message(str(n)) for n in range(first, first + BATCH)])
        await_dispatch(client)

    def invoices() -> list[int]:
        found: list[int] = (
            DeltaTable(str(table)).to_pyarrow_table(columns=["order"]).column("order").to_pylist()
        )
        return found

    for number, kill in enumerate(kills):
        post(number * BATCH)
        module = ("tests.support.halted_consumer", *kill.commit)
        with ConsumerProcess(tmp_path, *arguments, halt=True, module=module) as consumer:
            consumer.halted_at()
            consumer.kill()
        recorded = LedgerReader(ledger).sql("SELECT count(*) AS n FROM written_rows").to_pylist()[0]["n"]
        assert (len(invoices()) > 0, recorded > 0) == (kill.written, kill.recorded)
        if kill.loses_checkpoint:
            shutil.rmtree(settings.checkpoint_of("rows-invoices"))

    orders = (len(kills) + 1) * BATCH
    post(len(kills) * BATCH)
    consume(settings, lambda: spark)

    assert Counter(invoices()) == Counter(range(orders))
    reader = LedgerReader(ledger)
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_sends", "pending_retries"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view
    key = "consumer_group, topic, broker_name, queue_id, queue_offset, attempt"
    written = reader.sql(f"SELECT {key}, number, count(*) AS n FROM written_rows GROUP BY {key}, number")
    assert Counter(written.column("n").to_pylist()) == Counter({1: orders})
