"""A batch's plan goes from the reader to the batch once."""

from __future__ import annotations

from pathlib import Path

from jobs.runtime.checkpoint import StreamCheckpoint
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.source import batch_plan
from structured_streaming.source.data_loss import truncated, truncated_somewhere


def test_a_batchs_plan_is_taken_once(tmp_path: Path) -> None:
    file = StreamCheckpoint(tmp_path / "c").plan_file
    begin = Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 3})
    end = Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 12})
    batch_plan.write(file, begin, begin)
    batch_plan.write(file, begin, end)
    assert batch_plan.take(file) == batch_plan.Plan(ClusterOffsets.of(begin), ClusterOffsets.of(end))
    assert batch_plan.take(file) is None


def test_a_plan_says_what_the_broker_has_given_a_second_time(tmp_path: Path) -> None:
    file = StreamCheckpoint(tmp_path / "c").plan_file
    queue = MessageQueue("t", "b", 0)
    at = Offsets(65, {"t": "x"}, {queue: 3})
    losses = (truncated(queue, 3, 5, 1, 65, 65), truncated_somewhere(queue, 3, 5, 1, 65, 4))
    batch_plan.write(file, at, at, losses)
    taken = batch_plan.take(file)
    assert taken is not None
    assert taken.truncated == losses
