"""What a stream's checkpoint remembers over restarts, and what of Spark's log it reads."""

from __future__ import annotations

from pathlib import Path

from jobs.runtime.checkpoint import NO_BATCH, StreamCheckpoint
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets


def test_the_beginning_of_a_stream_is_decided_once(tmp_path: Path) -> None:
    checkpoint = StreamCheckpoint(tmp_path / "c")
    assert checkpoint.start(lambda: {"at": 1}) == {"at": 1}
    assert StreamCheckpoint(tmp_path / "c").start(lambda: {"at": 2}) == {"at": 1}


def test_batches_are_counted_in_sparks_logs(tmp_path: Path) -> None:
    checkpoint = StreamCheckpoint(tmp_path)
    assert checkpoint.last_planned() == checkpoint.last_committed() == NO_BATCH
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "commits" / "8").write_text("whatever Spark writes")
    (tmp_path / "offsets" / ".9.crc").write_text("")
    (tmp_path / "offsets" / "9").write_text("whatever Spark writes")
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (9, 8)


def test_a_streams_position_is_remembered_over_restarts(tmp_path: Path) -> None:
    assert StreamCheckpoint(tmp_path / "c").reached() is None
    end = ClusterOffsets.of(Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 12}))
    StreamCheckpoint(tmp_path / "c").reach(0, end)
    assert StreamCheckpoint(tmp_path / "c").reached() == end


def test_a_checkpoint_of_a_release_that_remembered_no_end_ends_where_sparks_log_does(
    tmp_path: Path,
) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "commits" / "8").write_text("v1\n{}")
    (tmp_path / "offsets" / "8").write_text(
        'v1\n{"batchTimestampMs":1}\n{"v":1,"epoch":1,"topics":{"t":{"id":"x","brokers":{"b":{"0":12}}}}}'
    )
    checkpoint = StreamCheckpoint(tmp_path)
    twelve = ClusterOffsets.of(Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 12}))
    assert checkpoint.reached() == twelve
    three = ClusterOffsets.of(Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 3}))
    checkpoint.reach(7, three)  # then that release ran again
    assert checkpoint.reached() == twelve
    (tmp_path / "offsets" / "8").write_text("v2\n{}\n{}")
    assert checkpoint.reached() is None


def test_what_a_first_batch_left_half_planned_is_cleared_away_and_a_planned_one_is_not(
    tmp_path: Path,
) -> None:
    checkpoint = StreamCheckpoint(tmp_path)
    log = tmp_path / "offsets"
    assert checkpoint.prepare() == str(tmp_path)
    log.mkdir()
    (log / ".0.12a7.tmp").write_text("v1\n{")
    (log / "..0.12a7.tmp.crc").write_text("")
    checkpoint.prepare()
    assert list(log.iterdir()) == []
    (log / "0").write_text("v1\n{}\n{}")
    (log / ".0.crc").write_text("")
    checkpoint.prepare()
    assert {entry.name for entry in log.iterdir()} == {"0", ".0.crc"}
