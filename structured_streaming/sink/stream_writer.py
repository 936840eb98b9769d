"""``df.writeStream.format("lakemq")``: rows become messages, each exactly once.

Owns the hooks of the streaming sink.

Invariants: whatever is run again - a task, a batch after a restart, a request after a broker's restart -
carries the key it carried before, so the broker stores it once. That holds as long as the same batch gives
the same rows in the same order; rows in another order can come twice, never be lost (see chunks.py).

Processes: made on the driver, pickled to the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from store_native.errors import InternalError
from structured_streaming import options
from structured_streaming.offsets import illegal
from structured_streaming.option_names import with_environment
from structured_streaming.sink import columns as sink_columns
from structured_streaming.sink.fixed_brokers import with_brokers
from structured_streaming.sink.refusal import Refused, check_refused, sent_or_refused
from structured_streaming.sink.sender import TaskResult, send_all
from structured_streaming.spark_versions import DataSourceStreamArrowWriter, as_arrow


class LakeMQStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch.

    Args:
        given: The options as the user wrote them.
        schema: The columns of the rows.
        overwrite: Set by outputMode("complete"), which a log cannot do.

    Raises:
        LakeMQError: An option or column is wrong.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise illegal("a log cannot be overwritten: use outputMode append or update, not complete")
        self._options = with_brokers(options.parse_write(with_environment(given)), given, streaming=True)
        sink_columns.check(schema, self._options.topic)
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult | Refused:
        """Sends one task's rows; runs on an executor, once per attempt. Spark 4.0 hands over rows."""
        context = task_context()
        batch_id, query_id = stream_ids(context)
        if batch_id is None or query_id is None:
            raise InternalError("SYSTEM_ERROR", "Spark gave the task no query id and batch id")
        name = self._options.name or query_id
        prefix = f"spark/{name}/{batch_id}/{context.partitionId()}"
        rows = as_arrow(iterator, self._schema)
        return sent_or_refused(lambda: send_all(self._options, prefix, rows))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Says what was refused; what tasks sent is stored and visible already.

        Raises:
            InvalidRequest: A task was refused; the query ends, and the batch is open.
        """
        check_refused(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Has nothing to take back: when the batch runs again, its keys are known."""


def task_context() -> TaskContext:
    """Returns the context of the running task."""
    context = TaskContext.get()
    if context is None:
        raise InternalError("SYSTEM_ERROR", "write() runs outside a Spark task")
    return context


def stream_ids(context: TaskContext) -> tuple[str | None, str | None]:
    """Returns the batch id and query id of a task that works for a streaming query."""
    return context.getLocalProperty("streaming.sql.batchId"), context.getLocalProperty(
        "sql.streaming.queryId"
    )
