"""When kept offsets are given to a master, and what is done with its refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ingest_api.broker.groups.offsets_aside import KeptOffset, OffsetsAside
from ingest_api.broker.groups.offsets_handover import HERE, OffsetsHandover
from ingest_api.broker.thread_pools import ReadPool
from lakemq.tls.trust import Trust
from store_native.errors import InvalidRequest, LakeMQError, Unavailable
from tests.support.waiting import wait_until_async


@pytest.fixture
def disk() -> Iterator[ReadPool]:
    pool = ReadPool(1)
    yield pool
    pool.close()


def kept(queue_id: int = 0) -> KeptOffset:
    return KeptOffset("orders", "a1", queue_id, 7, None)


class Master:
    """Takes offsets, or fails as it is told."""

    def __init__(self, *failures: LakeMQError) -> None:
        self.failures = list(failures)
        self.taken: list[tuple[str, int]] = []
        self.asked = 0

    async def take(self, group: str, offsets: Sequence[KeptOffset]) -> None:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append((group, len(offsets)))


def test_offsets_are_given_when_there_is_a_master(tmp_path: Path, disk: ReadPool) -> None:
    async def give() -> None:
        aside, master = OffsetsAside(tmp_path, disk), Master()
        await aside.keep("g", [kept(n) for n in range(1_001)])
        where: list[str | None] = [None]
        handover = OffsetsHandover(aside, master.take, lambda: where[0], Trust())
        handover.start()
        handover.master_changed()
        where[0] = HERE
        handover.master_changed()
        await wait_until_async(lambda: not aside.groups())
        await handover.stop()
        assert master.taken == [("g", 1_000), ("g", 1)]

    asyncio.run(give())


def test_a_refusal_for_now_is_tried_again_and_one_for_good_is_not(tmp_path: Path, disk: ReadPool) -> None:
    async def give() -> None:
        busy = Unavailable("SERVICE_NOT_AVAILABLE", "not now")
        held = InvalidRequest("LEASE_CONFLICT", "a driver holds the group")
        aside, master = OffsetsAside(tmp_path, disk), Master(busy, held)
        await aside.keep("g", [kept()])
        handover = OffsetsHandover(aside, master.take, lambda: HERE, Trust(), pause_s=0.01)
        handover.start()
        await wait_until_async(lambda: not aside.groups())
        await handover.stop()
        assert (master.asked, master.taken) == (2, [])

    asyncio.run(give())


def test_a_master_that_does_not_answer_leaves_them_kept(
    tmp_path: Path, disk: ReadPool, caplog: pytest.LogCaptureFixture
) -> None:
    async def give() -> None:
        asked = 0

        def nobody() -> str:
            nonlocal asked
            asked += 1
            return "http://127.0.0.1:9"

        aside = OffsetsAside(tmp_path, disk)
        await aside.keep("g", [kept()])
        handover = OffsetsHandover(aside, Master().take, nobody, Trust(), pause_s=0.01)
        handover.start()
        await wait_until_async(lambda: asked >= 3)
        await handover.stop()
        assert aside.of("g") == [kept()]
        assert len(caplog.records) == 1

    asyncio.run(give())


@pytest.mark.parametrize(("last", "for_good"), [(200, False), (409, True)])
def test_what_a_master_refuses_for_now_is_offered_again(
    tmp_path: Path, disk: ReadPool, caplog: pytest.LogCaptureFixture, last: int, for_good: bool
) -> None:
    async def give() -> None:
        left, asked = [503, 429, 408, 500, last], []
        aside = OffsetsAside(tmp_path, disk)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append((head.split()[1].decode(), aside.of("g")))
            body = b'{"code": "ANY", "detail": "as the test says"}'
            status = left.pop(0)
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
            writer.close()

        await aside.keep("g", [kept()])
        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            handover = OffsetsHandover(aside, Master().take, lambda: endpoint, Trust(), pause_s=0.01)
            handover.start()
            await wait_until_async(lambda: not aside.groups())
            await handover.stop()
        assert asked == [("/api/v1/groups/g/offsets/offer", [kept()])] * 5, "kept until it is decided"
        given_up = [record for record in caplog.records if "given up" in record.message]
        assert bool(given_up) == for_good

    asyncio.run(give())
