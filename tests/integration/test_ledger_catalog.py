"""A group whose ledger is a schema of a catalog: here Spark's own, on a cluster Unity Catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.views import TABLES, register_views
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import TRIGGER

HANDLER = """
def handle(message):
    if message.text == "3" and message.attempt == 1:
        raise ValueError("three")
"""


@pytest.mark.nightly
def test_a_group_runs_and_goes_on_with_its_ledger_in_a_catalog(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("catalogued", read_queue_nums=1, write_queue_nums=1)
    (tmp_path / "catalog_handlers.py").write_text(HANDLER)
    spark.sql("CREATE SCHEMA IF NOT EXISTS spark_catalog.lakemq_ledger")
    ledger = ledger_at("spark_catalog.lakemq_ledger")
    settings = ConsumeSettings(
        group="group-of-catalogued",
        topics=("catalogued",),
        handler=HandlerTarget("catalog_handlers:handle", "auto", (str(tmp_path),)),
        ledger=ledger,
        checkpoint=tmp_path / "checkpoint",
        endpoint=shared_broker.endpoint,
        start="earliest",
        max_reconsume_times=1,
        retry_delays="1s",
        trigger=TRIGGER,
        until_idle_s=0.5,
    )
    try:
        client.send_ndjson("catalogued", "\n".join(f'{{"body":"{n}"}}' for n in range(5)).encode())
        consume(settings, lambda: spark)
        client.send_ndjson("catalogued", b'{"body":"5"}')
        consume(settings, lambda: spark)
        register_views(spark, ledger)
        counted = spark.sql(
            "SELECT attempt, verdict, count(*) AS messages FROM deliveries GROUP BY 1, 2 ORDER BY 1, 2"
        )
        wanted = spark.createDataFrame(
            [(1, "ACK", 5), (1, "RETRY", 1), (2, "ACK", 1)], "attempt int, verdict string, messages bigint"
        )
        assert_df_equality(counted, wanted, ignore_nullable=True)
        assert spark.table("delivery_gaps").count() == spark.table("duplicate_deliveries").count() == 0
    finally:
        for table in TABLES:
            spark.sql(f"DROP TABLE IF EXISTS {ledger.qualified(table)}")
            spark.catalog.dropTempView(table.name)
        spark.sql("DROP SCHEMA spark_catalog.lakemq_ledger")
