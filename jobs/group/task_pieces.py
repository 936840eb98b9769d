"""The pieces of a task's messages that are handled at a time.

Owns how many messages and bytes a piece has. Pure.

Processes: executors.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

# Calls of single messages go on across pieces of so much: the last calls of a piece leave threads idle.
_JOINED_ROWS = 10_000
_JOINED_BYTES = 64 << 20
# What their verdicts send and write is held until a piece is handled: 4 MiB of either for each at most.
_SENDING_ROWS = 250


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches of a task, so that concurrent calls need not wait at the border of each."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _JOINED_ROWS or size >= _JOINED_BYTES:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cuts batches of a task, so that what the verdicts of one send fits the memory."""
    for batch in batches:
        for start in range(0, batch.num_rows, _SENDING_ROWS):
            end = min(start + _SENDING_ROWS, batch.num_rows)
            yield batch if end - start == batch.num_rows else batch.take(pa.array(range(start, end)))
