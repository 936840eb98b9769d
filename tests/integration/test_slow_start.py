"""A busy machine starts Python slower than Spark waits for it: the stream is started again.

Contract: a start that only took too long is repeated, a bounded number of times; other failures stay.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.runtime.started_stream import MOST_STARTS, StartedStream
from structured_streaming.datasource import LakeMQDataSource
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import Batches, start
from tests.support.waiting import wait_until

WAIT_S = 240.0

SLOW_ONCE = """#!/bin/sh
case "$*" in *python_streaming_source_runner*)
    mkdir "{mark}" 2>/dev/null && sleep 12;;  # Spark waits for ten seconds
esac
exec "{python}" "$@"
"""


def test_a_stream_whose_python_process_starts_late_is_started_again(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.client()
    client.put_topic("late", read_queue_nums=1, write_queue_nums=1)
    client.send("late", b"x")
    slow = tmp_path / "python"
    slow.write_text(SLOW_ONCE.format(mark=tmp_path / "was slow", python=sys.executable))
    slow.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(slow))
    batches, started = Batches(), []

    class Late(LakeMQDataSource):
        """The source, with the Python of the moment it is registered in."""

        @classmethod
        def name(cls) -> str:
            return "lakemq_late"

    session = spark.newSession()
    session.dataSource.register(Late)

    def begin() -> StreamingQuery:
        started.append(1)
        reader = session.readStream.format("lakemq_late").option("endpoint", broker.endpoint)
        frame = reader.options(subscribe="late", startingOffsets="earliest").load()
        return start(frame, tmp_path / "checkpoint", batches)

    stream = StartedStream(begin)

    def read() -> bool:
        assert stream.goes_on(), stream.failure()
        return bool(batches.rows)

    try:
        wait_until(read, WAIT_S)
    finally:
        stream.stop()
    assert (tmp_path / "was slow").exists()
    assert len(started) >= 2
    assert [bytes(row.body) for row in batches.rows] == [b"x"]


def test_starts_are_bounded_and_another_failure_is_not_repeated() -> None:
    starts: list[str] = []

    def fail(text: str) -> StreamingQuery:
        starts.append(text)
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match="connect back"):
        StartedStream(lambda: fail("Python worker failed to connect back."))
    assert len(starts) == MOST_STARTS
    with pytest.raises(RuntimeError, match="no such topic"):
        StartedStream(lambda: fail("no such topic"))
    assert len(starts) == MOST_STARTS + 1
