"""What a group has learned of its handler: how long it takes, and whether it ends its worker.

Owns both, and where the handler is called at all.

Invariants: kept beside the checkpoint, so that a restart goes on with it; another handler begins anew.

Processes: the driver.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from jobs.group.batch_size import BatchSize, Handled, calls_at_a_time
from jobs.group.quarantine import Quarantine
from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.settings import ConsumeSettings


class LearnedOfHandler:
    """One group's handler.

    Args:
        spark: says how many tasks run at a time.
        settings: the group's settings.
        checkpoint: the query's.

    Attributes:
        size: of the next batch.
        quarantine: whether the handler has a process of its own.
    """

    def __init__(self, spark: SparkSession, settings: ConsumeSettings, checkpoint: StreamCheckpoint) -> None:
        self._unknown_is_slow, calls = calls_at_a_time(settings.handler, settings.host)
        host = settings.host
        if settings.mode == "orderly":
            calls = 1  # how many a batch may have at a time is its lanes' matter
            # A worker that dies has its batch run again while others of the batch may still make calls: a
            # process of the handler's own dies alone.
            host = replace(host, isolation="process")
        self.size = BatchSize(
            checkpoint.bound_file,
            settings.max_messages_per_batch,
            settings.batch_time_s,
            lambda: spark.sparkContext.defaultParallelism,
            calls,
            settings.handler.target,
        )
        self.quarantine = Quarantine(checkpoint.quarantine_file, host, settings.handler.target)

    def begin(self) -> None:
        """Sets the size of the first batch."""
        self.size.begin(single=self._unknown_is_slow)

    def learn(self, handled: Handled) -> None:
        """Takes what a batch came to, once it is in the ledger."""
        self.size.learn(handled)
        self.quarantine.learn(handled.ended)
