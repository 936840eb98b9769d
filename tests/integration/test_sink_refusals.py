"""What a broker refuses ends a write at once: each task is tried once, and the query says it in one error.

Contract: a refused batch is not committed; what may pass stays with Spark, which runs the task again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.broker_process import BrokerProcess

ROWS = 40_000
"""Of 1 KiB: more than what a task's worker has in its pipes when it stops reading."""


@pytest.fixture
def strict(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker that makes no topic by itself."""
    return start_broker(arguments=("--no-store.auto_create_topics",))


def task_failures(spark: SparkSession, group: str) -> list[int]:
    """Failed tasks of each stage of a job group."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return [stage.numFailedTasks for stage in stages if stage is not None]


def rows(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("repeat('x', 1024) AS body")


def test_a_job_whose_topic_is_not_there_fails_once(spark: SparkSession, strict: BrokerProcess) -> None:
    spark.sparkContext.setJobGroup("refused-job", "a write that is refused")
    with pytest.raises(PySparkException) as raised:
        rows(spark).write.format("lakemq").mode("append").options(
            endpoint=strict.endpoint, topic="is-not-there"
        ).save()
    assert "TOPIC_NOT_EXIST: topic[is-not-there] not exist" in str(raised.value)
    assert "2 of 2 tasks were refused" in str(raised.value)
    failures = task_failures(spark, "refused-job")
    assert (bool(failures), sum(failures)) == (True, 0)


def test_a_query_that_is_refused_ends_and_its_batch_runs_when_the_topic_is_there(
    spark: SparkSession, strict: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    rows(spark, 10).write.mode("append").parquet(str(tmp_path / "in"))

    def run() -> str:
        query = (
            spark.readStream.schema("body string")
            .parquet(str(tmp_path / "in"))
            .writeStream.format("lakemq")
            .options(endpoint=strict.endpoint, topic="comes-later")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            assert sum(task_failures(spark, str(query.runId))) == 0
            assert task_failures(spark, str(query.runId))
        return str(query.exception())

    assert "TOPIC_NOT_EXIST: topic[comes-later] not exist" in run()
    client = strict.client()
    client.put_topic("comes-later", read_queue_nums=1, write_queue_nums=1)
    assert run() == "None"
    (queue,) = client.queues("comes-later")
    assert queue.max_offset == 10
