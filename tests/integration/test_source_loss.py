"""What a store no longer has: a query says it, or skips and counts it, never passes over it silently."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from store_native import Store
from tests.support.spark_streams import run_available, source, table
from tests.support.stores import open_store

HOUR_MS = 3_600_000
ROWS = 60
BODY = b"x" * 60_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of 1 MiB log files whose topic `t` has 60 messages of 60 kB on one queue: 4 files."""
    store = open_store(tmp_path / "store", commitlog_file_size=1 << 20, flush="async")
    store.wait_flushed(store.put_topic("t", read_queue_nums=1, write_queue_nums=1), 10_000)
    fill(store, ROWS)
    yield store
    store.close()


def fill(store: Store, count: int) -> None:
    end = 0
    for _ in range(count):
        end = store.append_message("t", BODY, queue_id=0).end_offset
    assert store.wait_dispatched(end, 10_000)
    assert store.wait_flushed(end, 10_000)


def expire_all_but_the_newest_file(store: Store) -> int:
    """Runs retention as in a hundred hours; returns the queue's new minimum."""
    stored = json.loads(store.read_json("t", 0, ROWS - 1, max_messages=1).messages)[0]["store_timestamp"]
    assert store.expire(stored + 100 * HOUR_MS) > 0
    low, _ = store.queue_bounds("t", 0)
    assert 0 < low < ROWS
    return low


def test_an_expired_range_fails_the_query_and_is_named(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    options = {"path": store.path, "subscribe": "t", "startingOffsets": "earliest"}
    frame = source(spark, "queue_offset bigint", maxOffsetsPerTrigger=5, **options)

    class Stop(Exception):
        pass

    def stop_after_the_first(batch_id: int) -> None:
        if batch_id == 1:
            raise Stop

    with pytest.raises(StreamingQueryException):
        run_available(frame, tmp_path / "c", stop_after_the_first)
    low = expire_all_but_the_newest_file(store)
    with pytest.raises(StreamingQueryException) as caught:
        run_available(frame, tmp_path / "c")
    assert f"topic t, broker broker-a, queue 0: offsets [5, {low}) expired" in str(caught.value)
    tolerant = source(spark, "queue_offset bigint", failOnDataLoss="false", **options)
    rows = run_available(tolerant, tmp_path / "c").rows
    assert [row.queue_offset for row in rows] == list(range(low, ROWS))


def test_a_batch_read_from_an_expired_offset_is_a_loss_too(spark: SparkSession, store: Store) -> None:
    low = expire_all_but_the_newest_file(store)
    options = {"path": store.path, "subscribe": "t", "startingOffsets": '{"t":{"0":0}}'}
    with pytest.raises(Exception, match=rf"offsets \[0, {low}\) expired"):
        table(spark, "queue_offset bigint", **options).collect()
    found = table(spark, "queue_offset bigint", failOnDataLoss="false", **options)
    assert_df_equality(found, spark.range(low, ROWS).toDF("queue_offset"), ignore_nullable=True)


def test_damaged_records_fail_the_query_or_are_skipped(spark: SparkSession, store: Store) -> None:
    where = json.loads(store.read_json("t", 0, 7, max_messages=1).messages)[0]["physical_offset"]
    store.close()
    log = Path(store.path) / "commitlog" / f"{where - where % (1 << 20):020d}"
    with log.open("r+b") as file:
        file.seek(where % (1 << 20) + 5_000)
        file.write(b"damage")
    options = {"path": store.path, "subscribe": "t"}
    with pytest.raises(Exception, match=r"offsets \[7, 8\) are damaged"):
        table(spark, "queue_offset bigint", **options).collect()
    found = table(spark, "queue_offset bigint", failOnDataLoss="false", **options)
    wanted = spark.range(ROWS).where("id <> 7").toDF("queue_offset")
    assert_df_equality(found, wanted, ignore_nullable=True)


def test_a_store_nobody_owns_is_read_whole(spark: SparkSession, store: Store) -> None:
    store.close()
    assert table(spark, "queue_offset bigint", path=store.path, subscribe="t").count() == ROWS
