"""Two groups on one catalog ledger, and OPTIMIZE beside them: a batch of retries conflicts with nobody.

Contract: whatever others commit to `deliveries` while a group handles its retries, the batch lands; a
delayed message that a crashed broker put twice is still handled once.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.known_keys import known_rows
from delta_tables.ledger import ledger_at
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.table import Table
from delta_tables.views import TABLES
from jobs.handler.loader import HandlerTarget
from jobs.redelivery.retried_messages import retried_messages
from jobs.settings import ConsumeSettings
from tests.support.broker_process import BrokerProcess
from tests.support.held_handler import HeldHandler
from tests.support.ledger_rows import delivery
from tests.support.spark_streams import TRIGGER
from tests.support.two_drivers import Driver


def write(spark: SparkSession, ledger: LedgerLocation, table: Table, **fields: object) -> None:
    row = delivery(**fields)  # type: ignore[arg-type]
    rows = pa.Table.from_pylist([{n: row.get(n) for n in table.column_names}], schema=table.arrow_schema)
    spark.createDataFrame(rows).write.format("delta").mode("append").saveAsTable(ledger.qualified(table))


@pytest.fixture
def ledger(spark: SparkSession) -> LedgerLocation:
    spark.sql("CREATE SCHEMA IF NOT EXISTS shared_ledger")
    location = ledger_at("spark_catalog.shared_ledger")
    location.create(*TABLES, spark=spark)
    return location


def test_a_batch_of_retries_lands_beside_other_groups_and_optimize(
    spark: SparkSession, shared_broker: BrokerProcess, ledger: LedgerLocation, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
    client.put_group("g")
    client.send_ndjson("orders", "\n".join(f'{{"body":"{n}"}}' for n in range(4)).encode())
    module = f"handler_of_{tmp_path.name}"
    handler = HeldHandler(tmp_path, module)
    write(spark, ledger, DELIVERIES, offset=3, verdict="RETRY", body=b"x")

    def send_back(name: str) -> None:
        failed = ledger.read(spark, DELIVERIES).where("verdict = 'RETRY'")
        messages = retried_messages(failed, "g").drop("delay_level", "due_at")
        messages.write.format("lakemq").mode("append").options(
            endpoint=shared_broker.endpoint, name=name
        ).save()

    send_back("once")
    settings = ConsumeSettings(
        "g",
        ("orders",),
        HandlerTarget(f"{module}:hold", "auto", (str(tmp_path),)),
        ledger,
        checkpoint=tmp_path,
        endpoint=shared_broker.endpoint,
        trigger=TRIGGER,
    )
    driver = Driver(spark, client, settings, tmp_path / "checkpoint")
    try:
        driver.wait_for(handler.handling.exists)
        write(spark, ledger, DELIVERIES, offset=3, attempt=2, consumer_group="other")
        spark.sql(f"OPTIMIZE {ledger.qualified(DELIVERIES)}")
        handler.go_on.touch()
        driver.wait_for(driver.committed.is_set)
        driver.committed.clear()
        send_back("again")  # as by a broker that crashed
        driver.wait_for(driver.committed.is_set)
        assert driver.stream.goes_on(), driver.stream.failure()
    finally:
        handler.go_on.touch()
        driver.stop()
    handled = select(
        ledger,
        "SELECT attempt, source_queue_offset FROM deliveries WHERE consumer_group = 'g' AND attempt = 2",
        spark,
    )
    assert handled == [(2, 0)]
    assert handler.calls() == ["3/2"]


def test_a_conflict_does_not_call_the_handlers_again(
    spark: SparkSession, shared_broker: BrokerProcess, ledger: LedgerLocation, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("changed", read_queue_nums=1, write_queue_nums=1)
    client.put_group("h")
    client.send("changed", b"x")
    module = f"handler_of_{tmp_path.name}"
    handler = HeldHandler(tmp_path, module)
    settings = ConsumeSettings(
        "h",
        ("changed",),
        HandlerTarget(f"{module}:hold", "auto", (str(tmp_path),)),
        ledger,
        checkpoint=tmp_path,
        endpoint=shared_broker.endpoint,
        start="earliest",
        trigger=TRIGGER,
    )
    driver = Driver(spark, client, settings, tmp_path / "checkpoint")
    try:
        driver.wait_for(handler.handling.exists)
        spark.sql(f"ALTER TABLE {ledger.qualified(DELIVERIES)} SET TBLPROPERTIES ('noted.by' = 'somebody')")
        handler.go_on.touch()
        assert "MetadataChangedException" in driver.await_end()
    finally:
        handler.go_on.touch()
        driver.stop()
    assert handler.calls() == ["0/1"]
    successor = Driver(spark, client, settings, tmp_path / "checkpoint")
    try:
        successor.wait_for(successor.committed.is_set)
    finally:
        successor.stop()
    assert handler.calls() == ["0/1", "0/1"]
    found = select(ledger, "SELECT queue_offset, attempt FROM deliveries WHERE consumer_group = 'h'", spark)
    assert found == [(0, 1)]


def test_rows_of_a_catalogs_table_are_found_by_position(spark: SparkSession, ledger: LedgerLocation) -> None:
    write(spark, ledger, DEAD_LETTERS, offset=5, consumer_group="mine", attempts=1)
    found = known_rows(
        spark,
        ledger,
        DEAD_LETTERS,
        "mine",
        [("orders", "broker-a", 0, 5), ("it's", "broker-a", 0, 5)],
        DEAD_LETTERS.key[1:5],
    )
    assert found == {("orders", "broker-a", 0, 5)}
