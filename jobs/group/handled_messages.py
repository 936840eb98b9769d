"""A batch of messages as a handler sees it.

Owns the original positions in place of those that were read, and the leaving out of a message that is stored
twice.

Processes: executors.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.redelivery.original_position import Positions, original_positions
from store_native.names import retry_topic


def as_handled(batch: pa.RecordBatch, positions: Positions) -> pa.RecordBatch:
    """The batch a handler sees: original positions in place of the read ones, and the attempt."""
    replaced = {
        "topic": positions.topic,
        "broker_name": positions.broker_name,
        "queue_id": positions.queue_id,
        "queue_offset": positions.queue_offset,
    }
    names = batch.schema.names
    arrays = [replaced.get(name, batch.column(name)) for name in names]
    return pa.RecordBatch.from_arrays([*arrays, positions.attempt], names=[*names, "attempt"])


def without_repeats(batch: pa.RecordBatch, group: str, seen: set[tuple[str, int]]) -> pa.RecordBatch:
    """Leaves out a retried message that is stored twice on the retry topic.

    A broker that crashed may put a delayed message twice; the two are close to each other on the
    retry topic's only queue, and one task has both. Repeats of earlier batches are left out before.
    """
    from_retry = pc.equal(batch.column("topic"), retry_topic(group))
    if batch.num_rows == 0 or not pc.any(from_retry).as_py():
        return batch
    positions = original_positions(batch, group)
    keys = zip(
        from_retry.to_pylist(),
        positions.topic.to_pylist(),
        positions.broker_name.to_pylist(),
        positions.queue_id.to_pylist(),
        positions.queue_offset.to_pylist(),
        positions.attempt.to_pylist(),
        strict=True,
    )
    keep = []
    for retried, topic, broker, queue, offset, attempt in keys:
        key = (f"{topic}/{broker}/{queue}/{offset}", attempt)
        keep.append(not retried or key not in seen)
        if retried:
            seen.add(key)
    return batch if all(keep) else batch.filter(pa.array(keep))
