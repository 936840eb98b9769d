"""The log itself says when a place of it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha_replicator.log_age import stored_at_ms
from store_native import Store
from tests.support.linked_brokers import FILE_BYTES, SOON_MS, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "a")
    yield opened
    opened.close()


def test_each_request_says_when_it_was_stored_over_the_end_of_a_file(store: Store) -> None:
    log = store.replicated_log()
    ends = [0, *(store.append_message("t", b"x" * 300_000, queue_id=0).end_offset for _ in range(5))]
    assert ends[-1] > FILE_BYTES, "the log rolls"
    assert store.wait_dispatched(ends[-1], SOON_MS)
    found = store.read_json("t", 0, 0, max_messages=100, max_bytes=1 << 30).messages
    stamps = [message["store_timestamp"] for message in json.loads(found)]
    assert [stored_at_ms(log, end) for end in ends[1:-1]] == stamps[1:]
    # In front of the first message stands the record that makes its topic.
    first = stored_at_ms(log, 0)
    assert first is not None
    assert first <= stamps[0]


def test_where_no_record_begins_nothing_is_said(store: Store) -> None:
    log = store.replicated_log()
    end = store.append_message("t", b"x" * 500).end_offset
    assert store.wait_flushed(end, SOON_MS)
    assert stored_at_ms(log, end) is None, "the log's end"
    assert stored_at_ms(log, end - 200) is None, "inside of a record"
    assert stored_at_ms(log, end + 1) is None
