"""``df.write.format("lakemq")``: rows become messages.

Owns the hooks of the batch sink.

Invariants: tasks that Spark runs again store nothing twice. With the option ``name`` (and the batch id inside
foreachBatch) a whole job can be run again; without it each job has an id of its own, and stores again.

Processes: made on the driver, pickled to the tasks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from structured_streaming import options
from structured_streaming.offsets import illegal
from structured_streaming.option_names import with_environment
from structured_streaming.sink import columns as sink_columns
from structured_streaming.sink.fixed_brokers import with_brokers
from structured_streaming.sink.refusal import Refused, check_refused, sent_or_refused
from structured_streaming.sink.sender import TaskResult, send_all
from structured_streaming.sink.stream_writer import stream_ids, task_context


class LakeMQBatchWriter(DataSourceArrowWriter):
    """Sends the rows of one job; arguments and errors as the streaming sink's."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise illegal('a log cannot be overwritten: use mode("append")')
        self._options = with_brokers(options.parse_write(with_environment(given)), given, streaming=False)
        sink_columns.check(schema, self._options.topic)
        self._job_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult | Refused:
        """Sends one task's rows; runs on an executor, once per attempt."""
        context = task_context()
        job = self._job_id
        if self._options.name is not None:
            batch_id, _ = stream_ids(context)
            job = f"{self._options.name}/{batch_id or 'job'}"
        prefix = f"spark/{job}/{context.partitionId()}"
        return sent_or_refused(lambda: send_all(self._options, prefix, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Says what was refused; what tasks sent is stored and visible already.

        Raises:
            InvalidRequest: A task was refused; the job fails.
        """
        check_refused(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Has nothing to take back: messages already sent stay."""
