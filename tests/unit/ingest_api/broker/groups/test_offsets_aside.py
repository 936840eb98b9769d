"""Offsets kept at a slave: what is kept, on which disk, and which of them still move a group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_api.broker.groups import offsets_aside
from ingest_api.broker.groups.offsets_aside import FILE, KeptOffset, OffsetsAside
from ingest_api.broker.thread_pools import ReadPool
from store_native.errors import Unavailable


@pytest.fixture
def disk() -> Iterator[ReadPool]:
    pool = ReadPool(1)
    yield pool
    pool.close()


def kept(offset: int, seen: int | None = None, topic_id: str = "a1", queue_id: int = 0) -> KeptOffset:
    return KeptOffset("orders", topic_id, queue_id, offset, seen)


@pytest.mark.parametrize(
    ("seen", "committed", "moves"),
    [
        (None, None, True),
        (None, 6, True),  # somebody committed at the master for the first time meanwhile
        (None, 8, False),
        (5, 5, True),
        (5, 7, False),
        (5, 8, False),
        (5, 4, False),  # moved back since
        (5, None, False),  # deleted since
    ],
)
def test_the_larger_offset_wins_unless_the_group_was_moved_back(
    seen: int | None, committed: int | None, moves: bool
) -> None:
    assert kept(7, seen).moves(committed) is moves


def test_what_is_kept_is_found_by_the_next_process(tmp_path: Path, disk: ReadPool) -> None:
    async def keep() -> None:
        aside = OffsetsAside(tmp_path, disk)
        await aside.keep("g", [kept(7, 5), kept(2, queue_id=1)])
        await aside.keep("g", [kept(6, 6)])  # smaller: what is kept stays, with what it had seen
        await aside.keep("h", [kept(9)])
        await aside.keep("h", [kept(1, topic_id="b2")])  # of the topic's next life

    asyncio.run(keep())
    again = OffsetsAside(tmp_path, disk)
    assert again.of("g") == [kept(7, 5), kept(2, queue_id=1)]
    assert again.of("h") == [kept(1, topic_id="b2")]
    assert again.groups() == ["g", "h"]
    assert again.of("nobody") == []


def test_what_a_master_took_is_forgotten_but_for_what_came_since(tmp_path: Path, disk: ReadPool) -> None:
    async def give() -> None:
        aside = OffsetsAside(tmp_path, disk)
        await aside.keep("g", [kept(7), kept(2, queue_id=1)])
        offered = aside.of("g")
        await aside.keep("g", [kept(8)])
        await aside.drop("g", offered)
        assert aside.of("g") == [kept(8)]
        await aside.drop("g", aside.of("g"))
        assert aside.groups() == []

    asyncio.run(give())
    assert OffsetsAside(tmp_path, disk).groups() == []


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path, disk: ReadPool) -> None:
    async def keep() -> None:
        aside = OffsetsAside(tmp_path, disk)
        (tmp_path / "lakemq").write_text("a file where the directory should be")
        with pytest.raises(Unavailable, match="offsets cannot be kept for the master"):
            await aside.keep("g", [kept(7)])
        assert aside.groups() == []

    asyncio.run(keep())


def test_there_are_at_most_so_many(tmp_path: Path, disk: ReadPool) -> None:
    async def keep() -> None:
        aside = OffsetsAside(tmp_path, disk)
        with pytest.raises(Unavailable, match="at most 100000 offsets for its master, this would be 100001"):
            await aside.keep("g", [kept(7, queue_id=n) for n in range(offsets_aside.MOST_OFFSETS + 1)])
        assert aside.groups() == []

    asyncio.run(keep())


@pytest.mark.parametrize(
    "content", ["", "{}", '{"v": 2, "groups": {}}', '{"v": 1, "groups": {"g": [{"offset": 1}]}}']
)
def test_a_file_that_is_not_readable_is_put_aside(tmp_path: Path, disk: ReadPool, content: str) -> None:
    file = tmp_path / FILE
    file.parent.mkdir()
    file.write_text(content)
    assert OffsetsAside(tmp_path, disk).groups() == []
    assert file.with_suffix(".damaged").read_text() == content
    assert not file.exists()
