"""The group job does not depend on the form of Spark's own offset log."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import TRIGGER

FORMAT = "spark.sql.streaming.offsetLog.formatVersion"


@pytest.mark.parametrize("version", [pytest.param("1", marks=pytest.mark.nightly), "2"])
def test_a_group_runs_and_goes_on_whatever_the_offset_logs_format(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, version: str
) -> None:
    client = shared_broker.client()
    topic = f"format-{version}"
    client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    (tmp_path / f"format_{version}.py").write_text("def handle(message):\n    pass\n")
    settings = ConsumeSettings(
        group=f"group-of-{topic}",
        topics=(topic,),
        handler=HandlerTarget(f"format_{version}:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=shared_broker.endpoint,
        start="earliest",
        trigger=TRIGGER,
        max_messages_per_batch=4,
        until_idle_s=0.5,
    )
    spark.conf.set(FORMAT, version)
    try:
        for first in (0, 6):
            lines = (f'{{"body":"{n}"}}' for n in range(first, first + 6))
            client.send_ndjson(topic, "\n".join(lines).encode())
            consume(settings, lambda: spark)
            if version == "1":  # what a checkpoint of a release that remembered no end holds
                for file in settings.checkpoint_of("group").glob("lakemq-reached.*"):
                    file.unlink()
    finally:
        spark.conf.unset(FORMAT)
    ledger = LedgerReader(tmp_path / "ledger")
    (counted,) = ledger.sql(
        "SELECT count(*) AS n, count(DISTINCT batch_id) AS batches FROM deliveries"
    ).to_pylist()
    assert counted["n"] == 12
    assert counted["batches"] >= 3
    for view in ("delivery_gaps", "duplicate_deliveries"):
        assert ledger.sql(f"SELECT * FROM {view}").num_rows == 0
