"""Handler loading, the checkpoint's start file, the gate, the cut into tasks, settings, idleness."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.ledger import ledger_at
from jobs.batch_gate import BatchGate, JobStopped
from jobs.checkpoint import NO_BATCH, StreamCheckpoint
from jobs.group_start import choose
from jobs.handler_loader import HandlerTarget
from jobs.idle import waiting_messages
from jobs.settings import ConsumeSettings
from jobs.slice_tasks import into_bins
from lakemq.client.results import QueueBounds
from lakemq.handler import Verdict, is_vectorised, vectorised
from store_native.errors import InvalidRequest
from structured_streaming import batch_plan
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.partitions import QueueSlice


def module(directory: Path, name: str, text: str) -> Path:
    (directory / f"{name}.py").write_text(text)
    return directory


def test_a_handler_is_found_beside_the_user(tmp_path: Path) -> None:
    module(tmp_path, "beside_user", "class Shop:\n    @staticmethod\n    def sell(message): return None\n")
    loaded = HandlerTarget("beside_user:Shop.sell", "auto", (str(tmp_path),)).load()
    assert loaded.function(None) is None
    assert not loaded.vectorised


@pytest.mark.parametrize(
    "target", ["nocolon", ":f", "m:", "no_such_module_here:f", "json:no_such", "json:__doc__"]
)
def test_a_wrong_handler_target_is_refused(target: str) -> None:
    with pytest.raises(InvalidRequest):
        HandlerTarget(target).load()


def test_a_module_whose_own_import_fails_says_so_itself(tmp_path: Path) -> None:
    module(tmp_path, "imports_nothing_there", "import surely_missing_module\n")
    with pytest.raises(ModuleNotFoundError, match="surely_missing_module"):
        HandlerTarget("imports_nothing_there:f", "auto", (str(tmp_path),)).load()


def test_a_vectorised_handler_is_told_by_mark_or_annotation() -> None:
    @vectorised
    def marked(batch: Any) -> None: ...

    def annotated(batch: pa.RecordBatch) -> None: ...

    def row(message: Any) -> None: ...

    assert [is_vectorised(f) for f in (marked, annotated, row)] == [True, True, False]


@pytest.mark.parametrize("level", [0, -1, True])
def test_a_delay_level_starts_at_one(level: int) -> None:
    with pytest.raises(ValueError, match="levels start at 1"):
        Verdict.retry(level)


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


def test_where_a_stream_stands_is_remembered_over_restarts(tmp_path: Path) -> None:
    assert StreamCheckpoint(tmp_path / "c").reached() is None
    end = Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 12})
    StreamCheckpoint(tmp_path / "c").reach(0, end)
    assert StreamCheckpoint(tmp_path / "c").reached() == end


def test_a_checkpoint_of_a_release_that_remembered_no_end_stands_where_sparks_log_says(
    tmp_path: Path,
) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "commits" / "8").write_text("v1\n{}")
    (tmp_path / "offsets" / "8").write_text(
        'v1\n{"batchTimestampMs":1}\n{"v":1,"epoch":1,"topics":{"t":{"id":"x","brokers":{"b":{"0":12}}}}}'
    )
    checkpoint = StreamCheckpoint(tmp_path)
    twelve = Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 12})
    assert checkpoint.reached() == twelve
    checkpoint.reach(7, Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 3}))  # then that release ran again
    assert checkpoint.reached() == twelve
    (tmp_path / "offsets" / "8").write_text("v2\n{}\n{}")
    assert checkpoint.reached() is None


def test_a_batchs_plan_is_taken_once(tmp_path: Path) -> None:
    file = StreamCheckpoint(tmp_path / "c").plan_file
    begin = Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 3})
    end = Offsets(1, {"t": "x"}, {MessageQueue("t", "b", 0): 12})
    batch_plan.write(file, begin, begin)
    batch_plan.write(file, begin, end)
    assert batch_plan.take(file) == (begin, end)
    assert batch_plan.take(file) is None


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


def test_a_closed_gate_lets_the_batch_inside_finish_and_then_refuses_what_it_held_back() -> None:
    gate, inside, leave = BatchGate(), threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        with gate.batch():
            inside.set()
            leave.wait(10)
            done.append("inside")

    def come_late() -> None:
        with suppress(JobStopped), gate.batch():
            done.append("late")

    first, late = threading.Thread(target=work), threading.Thread(target=come_late)
    first.start()
    assert inside.wait(10)
    gate.close()
    late.start()
    assert not gate.await_empty(timeout_s=0)
    leave.set()
    assert gate.await_empty(timeout_s=10)
    assert late.is_alive(), "held back, not refused while a batch is inside"
    gate.refuse()
    for thread in (first, late):
        thread.join(10)
        assert not thread.is_alive()
    assert done == ["inside"]
    with pytest.raises(JobStopped), gate.batch():
        pass


def piece(queue_id: int, rows: int) -> QueueSlice:
    return QueueSlice(MessageQueue("t", "b", queue_id), 100, 100 + rows)


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("sizes", [[5], [30_000], [100_000, 1, 1, 50_000], [20_000] * 9, []])
def test_tasks_cover_every_message_once_and_are_no_more_than_cores(sizes: list[int], cores: int) -> None:
    bins = into_bins([piece(queue, rows) for queue, rows in enumerate(sizes)], cores)
    assert len(bins) <= cores
    assert all(bins)
    covered = sorted((p.queue.queue_id, p.start, p.end) for pieces in bins for p in pieces)
    for queue, rows in enumerate(sizes):
        mine = [(start, end) for q, start, end in covered if q == queue]
        assert mine[0][0] == 100
        assert mine[-1][1] == 100 + rows
        assert all(a[1] == b[0] for a, b in itertools.pairwise(mine))


def test_a_small_batch_is_one_task_and_so_one_file() -> None:
    assert len(into_bins([piece(0, 500), piece(1, 500)], 8)) == 1


def test_the_ledger_decides_where_a_group_goes_on() -> None:
    held = QueueBounds(0, 10, 100, 90)
    assert choose(held, 50, 70, "earliest") == 50
    assert choose(held, 3, None, "earliest") == 3, "what expired is for the source to report"
    assert choose(held, None, 70, "earliest") == 70
    assert choose(held, None, 700, "earliest") == 90
    assert (choose(held, None, None, "earliest"), choose(held, None, None, "latest")) == (10, 90)


def test_a_retry_topic_made_again_is_read_from_its_beginning() -> None:
    held = QueueBounds(0, 10, 100, 90)
    assert choose(held, 500, None, "earliest", retry=True) == 10
    assert choose(held, 100, None, "earliest", retry=True) == 100, "all of it was handled"
    assert choose(held, 50, 70, "earliest", retry=True) == 50
    assert choose(held, 500, None, "earliest") == 500, "of any other topic the source reports it"


def test_delayed_messages_are_counted_over_all_levels() -> None:
    lines = ['lakemq_timing_messages{level="1"} 2', 'lakemq_timing_messages{level="3"} 5.0', "lakemq_x 9"]
    page = "\n".join(["# TYPE lakemq_timing_messages gauge", *lines, ""])
    assert waiting_messages(page) == 7


@pytest.mark.parametrize("group", ["", "a/b", "..", "a b", "x" * 121])
def test_a_group_name_that_could_become_another_path_is_refused(group: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        ConsumeSettings(group, ("t",), HandlerTarget("m:f"), ledger_at(str(tmp_path)))


def test_a_group_reads_its_retry_topic_too_but_not_in_broadcast_mode(tmp_path: Path) -> None:
    ledger = ledger_at(str(tmp_path))
    concurrent = ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger)
    broadcast = ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger, mode="broadcast")
    assert (concurrent.subscription, broadcast.subscription) == (("t", "%RETRY%g"), ("t",))
    assert concurrent.checkpoint_of("group") == tmp_path / "_checkpoints" / "g" / "group"


def test_a_ledger_in_a_catalog_needs_a_checkpoint() -> None:
    with pytest.raises(InvalidRequest, match="checkpoint"):
        ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger_at("main.lmq"))
