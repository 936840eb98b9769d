"""The driver is killed (-9) around what verdicts send and write: before it, after it, after its record.

Contract: each message of an acknowledged attempt is in its topic exactly once, each row in the user's table,
and the ledger has one row per attempt and one for each message sent and row written, whatever was killed,
also when the checkpoint of the stream that writes is lost with the driver. The run after the last kill is
this process's own.
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
from delta_tables.user_tables.path_table import PathTable
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

BATCH = 300
HANDLER = """
from lakemq.handler import Outgoing, TableRow, Verdict

def handle(message):
    number = int(message.text)
    if number % 50 == 0 and message.attempt == 1:
        raise ValueError("at first")
    return Verdict.ack(
        send=Outgoing("invoices", {"order": number}, sharding_key=str(message.queue_id)),
        rows=TableRow("billed", {"order": number, "amount": number / 2}),
    )
"""
RECORDS = ("sent_messages", "written_rows")
"""What the ledger says of messages that were sent, and of rows that were written."""


@dataclass(frozen=True)
class Kill:
    """Where the driver is killed: at commits, by table, number (the first sets the fence) and side.

    Attributes:
        done: Whether messages are in the topic and rows in the user's table then.
        recorded: Whether the ledger says so.
        loses_checkpoint: Whether the checkpoint of the stream that writes goes with the driver.
    """

    commits: tuple[tuple[str, str, str], ...]
    done: bool
    recorded: bool
    loses_checkpoint: bool = False


BEFORE_THE_RECORDS = tuple((table, "2", "before") for table in RECORDS)
OUTCOME_COMMITTED = Kill((("deliveries", "2", "after"),), done=False, recorded=False)
DONE = Kill(BEFORE_THE_RECORDS, done=True, recorded=False)
RECORDED = Kill(tuple((table, "2", "after") for table in RECORDS), done=True, recorded=True)
"""Spark's checkpoint does not know."""
DONE_AND_LOST = Kill(BEFORE_THE_RECORDS, done=True, recorded=True, loses_checkpoint=True)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param((DONE,), id="once"),
        pytest.param(
            (OUTCOME_COMMITTED, DONE, RECORDED, DONE_AND_LOST), id="everywhere", marks=pytest.mark.nightly
        ),
    ],
)
def test_a_driver_killed_around_what_verdicts_send_and_write_does_each_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, kills: tuple[Kill, ...]
) -> None:
    client = broker.client()
    for topic in ("orders", "invoices"):
        client.put_topic(topic, read_queue_nums=4, write_queue_nums=4)
    # A name of its own: workers that have run another test of this session know its modules.
    (tmp_path / "send_and_write.py").write_text(HANDLER)
    ledger, table = tmp_path / "ledger", tmp_path / "billed"
    schema = pa.schema([pa.field("order", pa.int64(), nullable=False), pa.field("amount", pa.float64())])
    DeltaTable.create(str(table), schema=schema)
    arguments = (
        *("--group", "g", "--topic", "orders", "--send-to", "invoices", "--write-to", "billed=billed"),
        *("--handler", "send_and_write:handle", "--ledger", "ledger", "--endpoint", broker.endpoint),
        *("--from", "earliest", "--retry-delays", "1s", "--available-now"),
    )
    settings = ConsumeSettings(
        group="g",
        topics=("orders",),
        handler=HandlerTarget("send_and_write:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(ledger)),
        endpoint=broker.endpoint,
        start="earliest",
        retry_delays="1s",
        trigger="200 milliseconds",
        send_to=("invoices",),
        write_to=(PathTable("billed", str(table)),),
        until_idle_s=0.5,
    )

    def post(first: int) -> None:
        client.send_many("orders", [Message(str(n)) for n in range(first, first + BATCH)])
        await_dispatch(client)

    def sent() -> list[int]:
        await_dispatch(client)
        found: list[int] = []
        for queue in client.queues("invoices"):
            offset = 0
            while offset < queue.max_offset:
                pulled = client.pull("invoices", queue.queue_id, offset, max=1000)
                found += [message.json()["order"] for message in pulled.messages]
                offset = pulled.next_offset
        return found

    def written() -> list[int]:
        found: list[int] = DeltaTable(str(table)).to_pyarrow_table(columns=["order"])["order"].to_pylist()
        return found

    def recorded(name: str) -> int:
        return int(LedgerReader(ledger).sql(f"SELECT count(*) AS n FROM {name}").to_pylist()[0]["n"])

    for number, kill in enumerate(kills):
        post(number * BATCH)
        words = [word for commit in kill.commits for word in commit]
        module = ("tests.support.halted_consumer", *words)
        with ConsumerProcess(tmp_path, *arguments, halt=True, module=module) as consumer:
            consumer.halted_at()
            consumer.kill()
        for done, name in zip((sent(), written()), RECORDS, strict=True):
            assert (len(done) > 0, recorded(name) > 0) == (kill.done, kill.recorded), name
        if kill.loses_checkpoint:
            shutil.rmtree(settings.checkpoint_of("rows-billed"))

    orders = (len(kills) + 1) * BATCH
    post(len(kills) * BATCH)
    consume(settings, lambda: spark)

    assert Counter(sent()) == Counter(written()) == Counter(range(orders))
    reader = LedgerReader(ledger)
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_sends", "pending_retries"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view
    key = "consumer_group, topic, broker_name, queue_id, queue_offset, attempt"
    for name in RECORDS:
        counted = reader.sql(f"SELECT {key}, number, count(*) AS n FROM {name} GROUP BY {key}, number")
        assert Counter(counted.column("n").to_pylist()) == Counter({1: orders}), name
