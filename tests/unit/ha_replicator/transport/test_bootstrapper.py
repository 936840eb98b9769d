"""A slave without a store gets its master's, or learns that it needs none.

Contract: where nothing was begun, tries end soon and the slave starts without; what was begun is tried until
it is done, unless the disk is full; a marker that is not needed goes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from ha_replicator.link_opening import LinkOpening
from ha_replicator.link_place import LinkPlace
from ha_replicator.master.replicas import Replicas
from ha_replicator.transport.bootstrapper import MOST_TRIES, Bootstrapper
from ha_replicator.transport.listener import ReplicationListener
from ha_replicator.transport.wakeups import Wakeups
from store_native import Bootstrap, Store
from store_native.errors import Unavailable
from tests.support.linked_brokers import FILE_BYTES, master_link, open_store, opening


class FullDisk:
    """A store being made on a disk that takes so many ranges of the log."""

    def __init__(self, store: Bootstrap, takes: int) -> None:
        self._store = store
        self._left = takes

    def append(self, offset: int, data: bytes, next_offset: int) -> None:
        if not self._left:
            raise Unavailable("DISK_FULL", "no space left on device")
        self._left -= 1
        self._store.append(offset, data, next_offset)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


class Made:
    """Counts the stores that were begun; the first so many are on a full disk."""

    def __init__(self, *takes: int) -> None:
        self.begun = 0
        self._takes = list(takes)

    def __call__(self, path: Path, file_size: int, first: int) -> Bootstrap:
        self.begun += 1
        store = Bootstrap(path, file_size, first)
        return FullDisk(store, self._takes.pop(0)) if self._takes else store  # type: ignore[return-value]


def link_opening(local_peer: bool, now: float) -> LinkOpening:
    return opening(1, now, local_peer=local_peer)


def master_of(path: Path, *, expired: bool) -> Store:
    """A master's store; its log begins at 0, or at a later file."""
    store = open_store(path)
    for _ in range(30 if expired else 1):
        end = store.append_message("t", b"x" * 100_000, queue_id=0).end_offset
    assert store.wait_dispatched(end, 30_000)
    if expired:
        store.checkpoint()
        assert store.expire(int(time.time() * 1000) + 100 * 3_600_000) > 0
    return store


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[LinkPlace]:
    log = store.replicated_log()
    listener = ReplicationListener(
        lambda local, now: master_link(log, now, local_peer=local),
        Replicas(log, needed=0),
        Wakeups(lambda: None),
        on_change=lambda: None,
        on_epoch=lambda epoch: None,
    )
    await listener.listen("127.0.0.1", 0)
    try:
        yield LinkPlace("127.0.0.1", listener.port)
    finally:
        await listener.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(), 60)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def is_marked(path: Path) -> bool:
    return (path / "lakemq" / "bootstrap").exists()


class Master:
    """Where the master takes slaves; the first so many questions fail."""

    def __init__(self, place: LinkPlace, *, fails: int = 0) -> None:
        self.asked = 0
        self._place = place
        self._fails = fails

    async def __call__(self) -> LinkPlace:
        self.asked += 1
        if self.asked <= self._fails:
            raise ConnectionRefusedError("nobody is there")
        return self._place


def test_a_full_disk_ends_it_and_it_is_not_tried_again(tmp_path: Path) -> None:
    store = master_of(tmp_path / "a", expired=True)
    made = Made(1)

    async def scenario() -> None:
        async with listening(store) as place:
            master = Master(place)
            slave = Bootstrapper(
                tmp_path / "b", FILE_BYTES, link_opening, master, pause_s=0.0, make_store=made
            )
            with pytest.raises(Unavailable, match="DISK_FULL"):
                await slave.run()
            assert master.asked == 1

    run(scenario)
    store.close()
    assert made.begun == 1
    assert is_marked(tmp_path / "b"), "it is begun anew at the next start"


@pytest.mark.parametrize("begun", [False, True])
def test_what_was_begun_is_tried_until_it_is_done(tmp_path: Path, begun: bool) -> None:
    store = master_of(tmp_path / "a", expired=True)
    path = tmp_path / "b"
    if begun:
        Bootstrap(path, FILE_BYTES, 0).close()
    fails = 3 * MOST_TRIES if begun else MOST_TRIES - 1

    async def scenario() -> None:
        async with listening(store) as place:
            master = Master(place, fails=fails)
            await Bootstrapper(path, FILE_BYTES, link_opening, master, pause_s=0.0).run()
            assert master.asked == fails + 1

    run(scenario)
    store.close()
    assert not is_marked(path)
    slave = open_store(path, "slave")
    assert slave.replicated_log().marks()[0] == store_begins(tmp_path / "a") > 0
    slave.close()


def store_begins(path: Path) -> int:
    return min(int(file.name) for file in (path / "commitlog").iterdir() if file.name.isdigit())


def test_where_nothing_was_begun_and_connections_break_off_the_tries_end(tmp_path: Path) -> None:
    taken = 0

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        taken += 1
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(close, "127.0.0.1", 0)
        master = Master(LinkPlace(*server.sockets[0].getsockname()[:2]))
        await Bootstrapper(tmp_path / "b", FILE_BYTES, link_opening, master, pause_s=0.0).run()
        server.close()

    run(scenario)
    assert taken == MOST_TRIES
    assert not is_marked(tmp_path / "b")


@pytest.mark.parametrize("begun", [False, True])
def test_a_log_that_tells_everything_leaves_an_empty_directory(tmp_path: Path, begun: bool) -> None:
    store = master_of(tmp_path / "a", expired=False)
    path = tmp_path / "b"
    if begun:
        bootstrap = Bootstrap(path, FILE_BYTES, 0)
        bootstrap.append(0, b"half of something", 17)
        bootstrap.close()

    async def scenario() -> None:
        async with listening(store) as place:
            master = Master(place)
            await Bootstrapper(path, FILE_BYTES, link_opening, master, pause_s=0.0).run()
            assert master.asked == 1

    run(scenario)
    store.close()
    assert not is_marked(path)
    slave = open_store(path, "slave")
    assert slave.watermarks() == (0, 0, 0, 0)
    slave.close()
