"""Maintenance beside a group that works, in a catalog; on a path a lock keeps the two apart.

Contract: whatever maintenance compacts, deletes and cleans while a group's batch is under way, no query
fails, the streams over the ledger pass over it, and nothing but the rows older than asked is gone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.data_losses import DATA_LOSSES
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_query import select
from delta_tables.maintenance import maintain, maintain_in_catalog
from delta_tables.sent_messages import SENT_MESSAGES
from jobs.consume import WRITTEN, consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import InternalError, InvalidRequest
from tests.support.available_runs import available_now
from tests.support.broker_process import BrokerProcess
from tests.support.catalog_files import files_of
from tests.support.held_handler import HeldHandler
from tests.support.ledger_rows import append, delivery
from tests.support.measured_handler import as_measured
from tests.support.spark_streams import TRIGGER
from tests.support.waiting import wait_until

WAIT_S = 240.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def test_tables_that_were_never_made_are_left_out_and_a_small_one_takes_few_tasks(
    spark: SparkSession,
) -> None:
    spark.sql("CREATE SCHEMA small_ledger")
    ledger = ledger_at("spark_catalog.small_ledger")
    assert isinstance(ledger, CatalogLedger)
    for schema in ("spark_catalog.small_ledger", "spark_catalog.small_ladder"):
        wrong = ledger_at(schema)
        assert isinstance(wrong, CatalogLedger)
        with pytest.raises(InvalidRequest, match=f"there is no ledger at {schema}"):
            maintain_in_catalog(spark, wrong, keep_days=30)
    ledger.create(DATA_LOSSES, spark=spark)
    context = spark.sparkContext
    context.setJobGroup("a small ledger is maintained", "")
    try:
        maintain_in_catalog(spark, ledger)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # as PySpark clears it
    made = spark.sql("SHOW TABLES IN small_ledger").where("NOT isTemporary").collect()
    assert [row.tableName for row in made] == ["data_losses"]

    seen = context.statusTracker()
    jobs = [seen.getJobInfo(job) for job in seen.getJobIdsForGroup("a small ledger is maintained")]
    stages = [seen.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    tasks = sum(stage.numTasks for stage in stages if stage is not None)
    assert 0 < tasks < 1000, "as many as Spark's own settings make take a minute of a core"


def test_tables_of_an_earlier_version_keep_their_log_for_a_month_and_what_was_not_sent(
    spark: SparkSession,
) -> None:
    spark.sql("CREATE SCHEMA earlier_ledger")
    ledger = ledger_at("spark_catalog.earlier_ledger")
    assert isinstance(ledger, CatalogLedger)
    retention, removed = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
    for table in (DELIVERIES, SENT_MESSAGES):
        spark.sql(
            f"CREATE TABLE {ledger.qualified(table)} ({table.ddl}) USING delta "
            f"TBLPROPERTIES ('{retention}' = 'interval 7 days')"
        )
    ledger.fit(DELIVERIES, SENT_MESSAGES, spark=spark)
    found = spark.sql(f"SHOW TBLPROPERTIES {ledger.qualified(DELIVERIES)}").collect()
    properties = {row["key"]: row["value"] for row in found}
    assert (properties[retention], properties[removed]) == ("interval 31 days", "interval 31 days")

    old = [delivery(n, finished_at=LONG_AGO, sends=1 if n else None) for n in range(2)]
    old.append(delivery(2, batch_id=1, finished_at=datetime.now(UTC)))
    files = files_of(spark, "earlier_ledger")
    append(files, DELIVERIES, old)
    maintain_in_catalog(spark, ledger, keep_days=30, tables=[DELIVERIES, SENT_MESSAGES])
    assert select(files, "SELECT queue_offset FROM deliveries ORDER BY 1") == [(1,), (2,)]
    kept = "SELECT next_offset FROM consumer_offsets WHERE query_id = 'retention'"
    assert select(files, kept) == [(1,)]
    DeltaTable(str(files.directory / CONSUMER_OFFSETS.name)).update(new_values={"recorded_at": LONG_AGO})
    maintain_in_catalog(spark, ledger, keep_days=30, tables=[CONSUMER_OFFSETS])
    assert select(files, kept) == [(1,)], "a queue's mark goes when the next one is there"


def test_a_batch_that_spark_has_not_committed_is_known_whatever_retention_has_deleted(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    """Of a driver that ends between the ledger's commit and Spark's, a month before its next start."""
    client = shared_broker.client()
    client.put_topic("kept-batch", read_queue_nums=1, write_queue_nums=1)
    handler = HeldHandler(tmp_path, f"handler_of_{tmp_path.name}")
    handler.go_on.touch()
    ledger = PathLedger(tmp_path / "ledger")
    more = {"topics": ("kept-batch",), "ledger": ledger, "checkpoint": tmp_path / "checkpoint"}
    called = f"{handler.module}:hold"
    settings = available_now("kept", called, tmp_path, endpoint=shared_broker.endpoint, **more)
    for texts in (["first"], ["second", "third"]):
        client.send_ndjson("kept-batch", "\n".join(f'{{"body":"{text}"}}' for text in texts).encode())
        if len(texts) == 1:
            consume(settings, lambda: spark)

    def end(batch_id: int) -> None:
        raise RuntimeError(f"the driver ends behind batch {batch_id}")

    with pytest.raises(InternalError, match="ends behind batch 1"):
        consume(settings, lambda: spark, after_ledger_commit=end)
    maintain(ledger, keep_days=10, now=datetime.now(UTC) + timedelta(days=30))
    consume(settings, lambda: spark)
    assert handler.calls() == ["0/1", "1/1", "2/1"]
    assert select(ledger, "SELECT queue_offset FROM deliveries ORDER BY 1") == [(1,), (2,)]


def test_maintenance_while_a_batch_is_under_way(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("kept-tidy", read_queue_nums=1, write_queue_nums=1)
    spark.sql("CREATE SCHEMA maintained_ledger")
    ledger = ledger_at("spark_catalog.maintained_ledger")
    assert isinstance(ledger, CatalogLedger)
    ledger.create(DELIVERIES, spark=spark)
    files = files_of(spark, "maintained_ledger")
    old = [delivery(n, consumer_group="old", finished_at=LONG_AGO) for n in range(2)]
    young = [delivery(n, consumer_group="young", finished_at=datetime.now(UTC)) for n in range(2)]
    young.append(delivery(2, consumer_group="old", batch_id=1, finished_at=datetime.now(UTC)))
    for row in (*old, *young):  # a file each: DELETE takes the old ones, OPTIMIZE packs the others
        append(files, DELIVERIES, [row])

    handler = HeldHandler(tmp_path, f"handler_of_{tmp_path.name}")
    settings = ConsumeSettings(
        group="tidy",
        topics=("kept-tidy",),
        handler=HandlerTarget(f"{handler.module}:hold", "auto", (str(tmp_path),)),
        ledger=ledger,
        checkpoint=tmp_path / "checkpoint",
        endpoint=shared_broker.endpoint,
        start="earliest",
        max_reconsume_times=1,
        retry_delays="1s",
        trigger=TRIGGER,
        until_idle_s=0.2,
    )
    texts = ["fine", "fails", "fine", "fails"]
    client.send_ndjson("kept-tidy", "\n".join(f'{{"body":"{text}"}}' for text in texts).encode())

    def tidy_up() -> None:
        try:
            wait_until(handler.handling.exists, WAIT_S, "no batch was handled")
            # Delta's transaction of the batch has begun.
            maintain_in_catalog(spark, ledger, keep_days=30, tables=[DELIVERIES])
        finally:
            handler.go_on.touch()

    with ThreadPoolExecutor(1) as pool:
        tidied = pool.submit(tidy_up)
        consume(as_measured(settings, rows=1000), lambda: spark)  # few are one task: a core is free
        tidied.result(WAIT_S)

    rows = select(
        files, "SELECT consumer_group, queue_offset, attempt, verdict FROM deliveries ORDER BY 1 DESC, 2, 3"
    )
    assert rows == [
        ("young", 0, 1, "ACK"),
        ("young", 1, 1, "ACK"),
        ("tidy", 0, 1, "ACK"),
        ("tidy", 1, 1, "RETRY"),
        ("tidy", 1, 2, "DEAD"),
        ("tidy", 2, 1, "ACK"),
        ("tidy", 3, 1, "RETRY"),
        ("tidy", 3, 2, "DEAD"),
        ("old", 2, 1, "ACK"),
    ]
    assert select(files, "SELECT queue_offset FROM dead_letters ORDER BY 1") == [(1,), (3,)]
    assert select(files, "SELECT * FROM delivery_gaps") == []
    assert [queue.max_offset for queue in client.queues("%DLQ%tidy")] == [2]
    assert [queue.max_offset for queue in client.queues("%RETRY%tidy")] == [2]
    assert sorted(handler.calls()) == ["0/1", "1/1", "1/2", "2/1", "3/1", "3/2"]
    histories = {
        table.name: DeltaTable(str(files.directory / table.name)).history()
        for table in WRITTEN
        if files.exists(table)
    }
    assert {"deliveries", "dead_letters", "consumer_offsets"} <= histories.keys()
    for name, commits in histories.items():
        of_spark = [commit for commit in commits if "Spark" in commit.get("engineInfo", "")]
        appends = [commit for commit in of_spark if commit["operation"] in ("WRITE", "STREAMING UPDATE")]
        assert all(commit["isBlindAppend"] for commit in appends), f"appends to {name} read it"
        assert appends or name not in ("deliveries", "dead_letters", "consumer_offsets"), name
    assert any(commit["operation"] == "OPTIMIZE" for commit in histories["deliveries"])
