"""How long a handler has a process of its own after one of its calls died."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.group.quarantine import QUIET_BATCHES, Quarantine
from jobs.handler.invocation import HandlerHost

THREAD = HandlerHost(concurrency=7)


def quarantine(directory: Path, host: HandlerHost = THREAD, handler: str = "app:handle") -> Quarantine:
    return Quarantine(directory / "checkpoint" / "quarantine.json", host, handler)


def isolation(directory: Path) -> str:
    """What a driver that starts now does."""
    return quarantine(directory).host.isolation


def test_a_call_that_died_is_remembered_over_a_restart(tmp_path: Path) -> None:
    chosen = quarantine(tmp_path)
    assert chosen.host == THREAD
    chosen.learn(2)
    assert chosen.host == HandlerHost(concurrency=7, isolation="process")
    assert isolation(tmp_path) == "process"


def test_it_ends_when_all_calls_of_so_many_batches_have_returned(tmp_path: Path) -> None:
    chosen = quarantine(tmp_path)
    chosen.begin()
    for _ in range(QUIET_BATCHES - 1):
        chosen.learn(0)
    assert isolation(tmp_path) == "process"
    chosen.learn(1)
    for _ in range(QUIET_BATCHES):
        assert chosen.host.isolation == "process"
        chosen.learn(0)
    assert chosen.host == THREAD
    assert isolation(tmp_path) == "thread"


def test_another_handler_begins_in_the_worker(tmp_path: Path) -> None:
    quarantine(tmp_path).begin()
    assert quarantine(tmp_path, handler="app:mended").host == THREAD


def test_a_group_that_asked_for_a_process_notes_nothing(tmp_path: Path) -> None:
    quarantine(tmp_path, HandlerHost(isolation="process")).learn(3)
    assert isolation(tmp_path) == "thread"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"batches": "7", "of": "app:handle"}',
        '{"batches": 1e400, "of": "app:handle", "parted": null}',
        "[" * 100_000,
    ],
)
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "quarantine.json").write_text(text)
    assert isolation(tmp_path) == "thread"


def test_a_note_that_cannot_be_written_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "checkpoint" / "quarantine.json").mkdir(parents=True)
    chosen = quarantine(tmp_path)
    chosen.learn(1)
    assert chosen.host.isolation == "process"
    assert "cannot be noted" in caplog.text


def test_the_batch_in_parts_and_whom_its_workers_die_of_are_remembered(tmp_path: Path) -> None:
    chosen = quarantine(tmp_path)
    assert chosen.parted("query", 3) is None
    chosen.begin()
    chosen.part("query", 3)
    assert quarantine(tmp_path).parted("query", 3) == frozenset()
    chosen.part("query", 3, [("orders", "broker-a", 0, 7, 1)])
    again = quarantine(tmp_path)
    assert again.parted("query", 3) == frozenset({("orders", "broker-a", 0, 7, 1)})
    assert again.host.isolation == "process"
    assert again.parted("query", 4) is again.parted("other", 3) is None
    assert quarantine(tmp_path, handler="app:mended").parted("query", 3) is None
