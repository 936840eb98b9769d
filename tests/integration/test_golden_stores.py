"""Stores that earlier versions wrote, opened by this one.

Contract: whatever a released version stored, a later one shows and goes on with, its owner and a reader
beside nobody alike, after a clean stop and after kill -9. `python -m tests.golden.make VERSION` makes the
files of a release.
"""

from __future__ import annotations

import json
import tarfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from store_native import Reader, Store, verify
from tests.golden.make import KEYED
from tests.support.golden import GOLDEN, OPTIONS, look
from tests.support.waiting import wait_until

TWO_HOURS_MS = 7_200_000
VERSIONS = sorted(path.parent.name for path in GOLDEN.glob("*/store.json"))


@pytest.fixture(params=product(VERSIONS, ("clean", "killed")), ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, dict[str, Any]]:
    """A copy of a golden store, how its owner ended, and what it has to show."""
    version, stop = request.param
    with tarfile.open(GOLDEN / version / "store.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / stop, stop, json.loads((GOLDEN / version / "store.json").read_text(encoding="utf-8"))


def test_there_are_golden_files() -> None:
    assert "0.1.0" in VERSIONS


def test_a_reader_shows_what_was_stored(golden: tuple[Path, str, dict[str, Any]]) -> None:
    path, _, shown = golden
    del shown["made_at"]
    reader = Reader(path)
    assert look(reader) == shown
    reader.close()


def test_an_owner_shows_what_was_stored_and_goes_on(golden: tuple[Path, str, dict[str, Any]]) -> None:
    path, stop, shown = golden
    made_at = shown.pop("made_at")
    store = Store(path, **OPTIONS)
    try:
        assert store.recovery["clean"] is (stop == "clean")
        assert store.recovery["quarantined_bytes"] == 0
        assert look(store) == shown
        assert store.topic_json("gone") is None
        assert sorted(store.group_offsets("shop")) == [("orders", 0, 7), ("orders", 1, 3)]
        assert store.append_json("orders", KEYED, idempotency_key="golden").duplicate
        ends = [queue[2] for queue in store.queues("orders")]
        end = store.append_message("orders", b"next", queue_id=0).end_offset
        assert store.wait_dispatched(end, 60_000)
        assert [queue[2] for queue in store.queues("orders")] == [ends[0] + 1, ends[1]]
        if time.time() * 1000 > made_at + TWO_HOURS_MS:
            wait_until(lambda: store.queue_bounds("later", 0) == (0, 1), 60)
            assert store.delay_progress() == [(18, 1, 1)]
    finally:
        store.close()
    assert verify(path)["ok"]
