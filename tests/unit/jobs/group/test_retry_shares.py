"""Retried messages dealt out to tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from jobs.group.known_attempts import Attempt, WithoutKnown, attempts
from jobs.group.retry_shares import RetryShares, share_of

MAP = pa.map_(pa.string(), pa.string())


def retried(offsets: list[int]) -> pa.RecordBatch:
    """Rows of the retry topic, each the second attempt at the message of an offset."""
    rows = len(offsets)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["%RETRY%g"] * rows),
            "broker_name": pa.array(["broker-a"] * rows),
            "queue_id": pa.array([0] * rows, pa.int32()),
            "queue_offset": pa.array(range(rows), pa.int64()),
            "reconsume_times": pa.array([1] * rows, pa.int32()),
            "properties": pa.array(
                [[("RETRY_TOPIC", "t"), ("LMQ_ORIGIN", f"b/{offset % 3}/{offset}")] for offset in offsets],
                MAP,
            ),
        }
    )


class ReadsThree:
    """Stands where slices are read: the same batches at each call."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self.batches = batches

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert [number for batch in numbers for number in batch.column(0).to_pylist()] == [0]
        yield from self.batches


@pytest.mark.parametrize("shares", [1, 2, 5])
def test_each_message_is_one_tasks_with_all_its_copies(shares: int) -> None:
    known: frozenset[Attempt] = frozenset([("t", "b", 0, 3, 2)])
    read = ReadsThree(retried(list(range(100))), retried([]), retried([7, 8, 9, 7, 3]))
    fresh = WithoutKnown(read, "g", known)  # type: ignore[arg-type]  # reads no slices
    seen: list[tuple[int, Attempt]] = []
    for share in range(shares):
        numbers = pa.RecordBatch.from_pydict({"id": pa.array([share], pa.int64())})
        for batch in RetryShares(fresh, "g", shares)(iter([numbers])):
            seen += [(share, attempt) for attempt in attempts(batch, "g")]
    tasks: dict[Attempt, set[int]] = {}
    for share, attempt in seen:
        tasks.setdefault(attempt, set()).add(share)
    assert all(len(of) == 1 for of in tasks.values())
    counted = Counter(attempt[3] for _, attempt in seen)
    assert counted == Counter({**dict.fromkeys(range(100), 1), 7: 3, 8: 2, 9: 2, 3: 0}) - Counter({3: 0})
    assert len({share for share, _ in seen}) == shares


def test_shares_are_about_equal() -> None:
    counted = Counter(share_of(("orders", "broker-a", n % 4, n), 4) for n in range(4_000))
    assert all(800 < count < 1_200 for count in counted.values())
