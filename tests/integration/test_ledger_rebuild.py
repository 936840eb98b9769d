"""A ledger that was lost, made again out of the log.

Contract: with the ledger and its checkpoints gone and the group's offsets moved to the start of its topics, a
run makes the rows that follow from the log and the handler again, each once; what says when, where and in
which batch it happened is new. docs/ledger.md says which columns those are.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from delta_tables.dead_letters import DEAD_LETTERS, FIRST_ATTEMPT_PROPERTY
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from delta_tables.table import Table
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq.cli.app import main
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import TRIGGER

HANDLER = """
from lakemq.handler import Outgoing, Verdict


def charge(message):
    number = int(message.body)
    if number % 7 == 0 and message.attempt == 1:
        raise ConnectionError(f"bank away for {number}")
    if number % 10 == 3:
        return Verdict.retry("1s", reason="not yet") if message.attempt == 1 else None
    if number % 10 == 5:
        return Verdict.dead("five")
    if number == 11:
        raise ValueError("eleven fails")
    if number == 12:
        return Verdict.ack(send=Outgoing("parcels", "of 12"))
"""
MESSAGES = 30
NEW = {
    "deliveries": {
        *("started_at", "finished_at", "next_attempt_at", "worker", "query_id", "batch_id"),
        *("born_timestamp", "store_timestamp", "source_queue_offset"),
    },
    "dead_letters": {"first_attempt_at", "last_attempt_at", "worker", "query_id", "batch_id"},
}
"""Columns that say when and where, not what; of `properties`, FIRST_ATTEMPT_PROPERTY does."""


def rows(ledger: Path, table: Table) -> list[dict[str, Any]]:
    key = ", ".join(table.key)
    found = LedgerReader(ledger).sql(f"SELECT * FROM {table.name} ORDER BY {key}")
    made: list[dict[str, Any]] = found.to_pylist()
    for row in made:
        if row["properties"] is not None:
            properties = dict(row["properties"])
            properties.pop(FIRST_ATTEMPT_PROPERTY, None)
            row["properties"] = properties
    return made


def differing(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> set[str]:
    return {
        name for one, other in zip(before, after, strict=True) for name in one if one[name] != other[name]
    }


def test_a_ledger_that_was_lost_is_made_again_out_of_the_log(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    client = broker.client()
    for topic in ("orders", "parcels"):
        client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    lines = (
        json.dumps({"body": str(n), "keys": [f"K{n}"], "queue_id": n % 2}) for n in range(1, MESSAGES + 1)
    )
    client.send_ndjson("orders", "\n".join(lines).encode())
    (tmp_path / "rebuild_handlers.py").write_text(HANDLER)
    home = tmp_path / "ledger"
    settings = ConsumeSettings(
        group="billing",
        topics=("orders",),
        handler=HandlerTarget("rebuild_handlers:charge", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(home)),
        endpoint=broker.endpoint,
        start="earliest",
        max_reconsume_times=1,
        retry_delays="1s",
        trigger=TRIGGER,
        until_idle_s=0.5,
        send_to=("parcels",),
    )
    consume(settings, lambda: spark)
    before = {table.name: rows(home, table) for table in (DELIVERIES, DEAD_LETTERS)}
    verdicts = {(row["attempt"], row["verdict"]) for row in before["deliveries"]}
    assert verdicts == {(1, "ACK"), (1, "RETRY"), (1, "DEAD"), (2, "ACK"), (2, "DEAD")}

    (sent,) = LedgerReader(home).sql("SELECT sent_message_id FROM sent_messages").to_pylist()

    shutil.rmtree(home)
    reset = ["group", "reset", "billing", "--topic", "orders", "--to", "earliest", "--execute"]
    assert main([*reset, "--endpoint", broker.endpoint]) == 0
    consume(settings, lambda: spark)

    for table in (DELIVERIES, DEAD_LETTERS):
        after = rows(home, table)
        assert len(after) == len(before[table.name])
        assert differing(before[table.name], after) <= NEW[table.name], table.name
    reader = LedgerReader(home)
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "pending_dead_letters"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view
    # What the group sends is sent again, a verdict's messages with the ids they had.
    topics = ("%RETRY%billing", "%DLQ%billing", "parcels")
    stored = {topic: sum(queue.max_offset for queue in client.queues(topic)) for topic in topics}
    assert stored == {topic: 2 * number for topic, number in zip(topics, (8, 4, 1), strict=True)}
    (recorded,) = reader.sql("SELECT sent_message_id FROM sent_messages").to_pylist()
    assert recorded["sent_message_id"] == sent["sent_message_id"]
