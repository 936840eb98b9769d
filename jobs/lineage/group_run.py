"""The run of a consumer group.

Owns what a group reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from jobs.lineage.datasets import Dataset, ledger_dataset, topic_dataset, user_dataset
from jobs.lineage.job_run import job_run
from store_native.names import retry_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.group.batch_report import BatchReport
    from jobs.settings import ConsumeSettings


@contextmanager
def group_run(
    spark: SparkSession, settings: ConsumeSettings, endpoint: str
) -> Iterator[Callable[[BatchReport], None]]:
    """Tells a group's run while the block runs.

    Args:
        spark: the session.
        settings: the group's; its tables are there.
        endpoint: the client's.

    Yields:
        What is to be called with each batch.
    """

    def datasets(topics: Iterable[str]) -> list[Dataset]:
        return [topic_dataset(endpoint, topic) for topic in sorted(topics)]

    def outputs() -> list[Dataset]:
        written = [DELIVERIES] if settings.mode == "broadcast" else [DELIVERIES, DEAD_LETTERS]
        tables = [ledger_dataset(settings.ledger, table, spark) for table in written]
        return [
            *tables,
            *(user_dataset(table, spark) for table in settings.write_to),
            *datasets(settings.send_to),
        ]

    def tell(batch: BatchReport) -> None:
        if run is not None:
            run.handled(datasets(batch.topics - {retry_topic(settings.group)}), batch.messages)

    # A pattern's topics are known with the first batch.
    topics = datasets(settings.topics)
    name = f"consume.{settings.group}"
    with job_run("CONSUMER_GROUP", name, not settings.available_now, topics, outputs, spark) as run:
        yield tell
