"""One reader of a store serves many tasks, as long as its directory holds that store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from store_native.errors import Closed
from structured_streaming.readers.local import local_reader
from tests.support.linked_brokers import open_store


def test_a_store_that_took_the_place_of_another_is_opened_anew(tmp_path: Path) -> None:
    def hold(topic: str) -> None:
        store = open_store(tmp_path)
        end = store.append_message(topic, b"x", queue_id=0).end_offset
        assert store.wait_dispatched(end, 30_000)
        store.close()

    hold("before")
    reader = local_reader(str(tmp_path))
    assert "before" in reader.topics()
    assert local_reader(str(tmp_path)) is reader
    for part in tmp_path.iterdir():  # the directory stays, as where a slave's store becomes its master's
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    hold("after")
    with pytest.raises(Closed, match="was replaced: open it anew"):
        reader.topics()
    again = set(local_reader(str(tmp_path)).topics())
    assert ("after" in again, "before" in again) == (True, False)
