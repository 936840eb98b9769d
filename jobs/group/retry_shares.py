"""Retried messages dealt out to tasks, by a hash of their original positions.

Owns which task handles which message of the retry topic: it has one queue, whose offsets say nothing of whose
attempts they are.

Invariants: all copies of one message are one task's, which so sees a message that is stored twice; each
message is exactly one task's.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.group.known_attempts import WithoutKnown, attempts


@dataclass(frozen=True)
class RetryShares:
    """Reads retried messages, a share in each task.

    Attributes:
        read: reads all of them, as its bin 0.
        group: the group.
        shares: how many tasks there are.
    """

    read: WithoutKnown
    group: str
    shares: int

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task's share."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                all_of_them = pa.RecordBatch.from_arrays([pa.array([0], pa.int64())], names=["id"])
                for rows in self.read(iter([all_of_them])):
                    mine = [
                        share_of(attempt[:4], self.shares) == number for attempt in attempts(rows, self.group)
                    ]
                    yield rows.filter(pa.array(mine, pa.bool_()))


def share_of(position: tuple[str, str, int, int], shares: int) -> int:
    """Which of so many tasks handles the message of a position."""
    return zlib.crc32("/".join(map(str, position)).encode("utf-8", "surrogatepass")) % shares
