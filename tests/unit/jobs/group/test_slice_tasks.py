"""What a group's tasks read, and how a batch is cut into them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from delta_tables.ledger import ledger_at
from jobs.group.slice_tasks import into_bins, reader_of
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native import Store
from structured_streaming.offsets import MessageQueue
from structured_streaming.source.partitions import QueueSlice
from tests.support.stores import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """On each topic a message tagged A and one tagged B."""
    store = open_store(tmp_path / "store", flush="async")
    for topic in ("orders", "%RETRY%g", "%RETRY%other"):
        store.wait_flushed(store.put_topic(topic, read_queue_nums=1, write_queue_nums=1), 10_000)
        for tag in ("A", "B"):
            end = store.append_message(topic, tag.encode(), tags=tag, queue_id=0).end_offset
        assert store.wait_dispatched(end, 10_000)
        assert store.wait_flushed(end, 10_000)
    yield store
    store.close()


@pytest.mark.parametrize(
    ("tags", "first"),
    [("A", [b"A"]), ("B", [b"B"]), ("C", []), ("A || B", [b"A", b"B"]), ("*", [b"A", b"B"])],
)
def test_what_waits_on_the_retry_topic_is_read_whatever_the_tags_are_now(
    store: Store, tmp_path: Path, tags: str, first: list[bytes]
) -> None:
    ledger = ledger_at(str(tmp_path / "ledger"))
    settings = ConsumeSettings(
        "g", ("orders",), HandlerTarget("m:f"), ledger, path=str(store.path), tags=tags
    )
    reader = reader_of(settings, "http://127.0.0.1:1", 1.0)

    def bodies(topic: str) -> list[bytes]:
        piece = QueueSlice(MessageQueue(topic, "broker-a", 0), 0, 2)
        return [body for batch in reader.read(piece) for body in batch.column("body").to_pylist()]

    assert bodies("orders") == first
    assert bodies("%RETRY%g") == [b"A", b"B"]
    assert bodies("%RETRY%other") == first


def piece(queue_id: int, rows: int) -> QueueSlice:
    return QueueSlice(MessageQueue("t", "b", queue_id), 100, 100 + rows)


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("sizes", [[5], [30_000], [100_000, 1, 1, 50_000], [20_000] * 9, []])
def test_tasks_cover_every_message_once_and_are_no_more_than_cores(sizes: list[int], cores: int) -> None:
    bins = into_bins([piece(queue, rows) for queue, rows in enumerate(sizes)], cores, 10_000)
    assert len(bins) <= cores
    assert all(bins)
    covered = sorted((p.queue.queue_id, p.start, p.end) for pieces in bins for p in pieces)
    for queue, rows in enumerate(sizes):
        mine = [(start, end) for q, start, end in covered if q == queue]
        assert mine[0][0] == 100
        assert mine[-1][1] == 100 + rows
        assert all(a[1] == b[0] for a, b in itertools.pairwise(mine))


def test_a_small_batch_is_one_task_and_so_one_file() -> None:
    assert len(into_bins([piece(0, 500), piece(1, 500)], 8, 10_000)) == 1
