"""Reading bodies: within a size, a time and a memory, and nothing left reserved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from ingest_api.broker.admission import Admission
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.settings import LimitSettings
from ingest_api.http.request.body import Body, BodyReader, ClientGone, Deadlines
from store_native.errors import InvalidRequest, Unavailable

Message = dict[str, object]


class Clock:
    """A clock a test moves; what was to be called by then is called."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, call: Callable[[], None]) -> None:
        self._calls.append((due, call))

    def move(self, seconds: float) -> None:
        self.now += seconds
        due, self._calls = (
            [c for c in self._calls if c[0] <= self.now],
            [c for c in self._calls if c[0] > self.now],
        )
        for _, call in due:
            call()


class Reading:
    """A reader with everything it needs."""

    def __init__(self, limit: int = 100, small: int = 10, parsing: int = 1_000) -> None:
        self.clock = Clock()
        self.admission = Admission(LimitSettings(max_parsing_bytes=parsing), BrokerMetrics())
        self.deadlines = Deadlines(30.0, self.clock.time, self.clock.call_at)
        self.reader = BodyReader(self.deadlines, self.admission, limit, small)
        self.body = Body()

    async def read(self, messages: Iterable[Message], length: int | None = None) -> bytes:
        left = list(messages)

        async def receive() -> Message:
            if not left:
                await asyncio.get_running_loop().create_future()  # a client that says no more
            return left.pop(0)

        await self.reader.read(receive, length, self.body)
        return b"".join(self.body.chunks)


def chunk(data: bytes, more: bool = True) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


def test_chunks_are_joined_in_order() -> None:
    reading = Reading()
    assert asyncio.run(reading.read([chunk(b"ab"), chunk(b""), chunk(b"c", more=False)])) == b"abc"
    assert reading.body.complete
    assert reading.admission.parsing_bytes == 0, "a small body reserves nothing"


def test_a_length_above_the_limit_is_refused_before_anything_is_read() -> None:
    reading = Reading(limit=100)
    with pytest.raises(InvalidRequest) as refused:
        asyncio.run(reading.read([], length=101))
    assert refused.value.code == "REQUEST_TOO_LARGE"


def test_a_chunked_body_is_refused_at_the_chunk_that_passes_the_limit() -> None:
    reading = Reading(limit=100)
    with pytest.raises(InvalidRequest) as refused:
        asyncio.run(reading.read([chunk(b"x" * 60), chunk(b"x" * 60), chunk(b"x" * 60, more=False)]))
    assert refused.value.code == "REQUEST_TOO_LARGE"
    assert reading.body.size == 120
    reading.reader.release(reading.body)
    assert reading.admission.parsing_bytes == 0


def test_a_large_body_reserves_its_length_and_gives_it_back() -> None:
    reading = Reading()
    asyncio.run(reading.read([chunk(b"x" * 50, more=False)], length=50))
    assert reading.admission.parsing_bytes == 50
    reading.reader.release(reading.body)
    reading.reader.release(reading.body)
    assert reading.admission.parsing_bytes == 0


def test_a_chunked_body_reserves_as_it_grows() -> None:
    reading = Reading()
    asyncio.run(reading.read([chunk(b"x" * 30), chunk(b"x" * 30, more=False)]))
    assert reading.admission.parsing_bytes >= 60


def test_too_many_large_bodies_at_once_are_turned_away() -> None:
    reading = Reading(limit=100, parsing=60)
    reading.admission.reserve(50)
    with pytest.raises(Unavailable) as refused:
        asyncio.run(reading.read([chunk(b"x" * 50, more=False)], length=50))
    assert refused.value.code == "TOO_MANY_REQUESTS"


def test_a_client_that_goes_away_is_not_answered() -> None:
    with pytest.raises(ClientGone):
        asyncio.run(Reading().read([chunk(b"x"), {"type": "http.disconnect"}]))


def test_a_body_that_never_ends_is_refused_at_its_deadline_and_not_before() -> None:
    reading = Reading()

    async def scenario() -> None:
        task = asyncio.ensure_future(reading.read([chunk(b"x")]))
        await asyncio.sleep(0)
        reading.clock.move(29.9)
        await asyncio.sleep(0)
        assert not task.done()
        reading.clock.move(0.2)
        with pytest.raises(InvalidRequest) as refused:
            await task
        assert refused.value.code == "REQUEST_TIMEOUT"

    asyncio.run(scenario())


def test_each_body_has_its_own_deadline() -> None:
    first, second = Reading(), Reading()
    second.clock, second.reader = first.clock, first.reader

    async def scenario() -> None:
        early = asyncio.ensure_future(first.read([chunk(b"x")]))
        await asyncio.sleep(0)
        first.clock.move(20)
        late = asyncio.ensure_future(second.read([chunk(b"x")]))
        await asyncio.sleep(0)
        first.clock.move(15)
        with pytest.raises(InvalidRequest):
            await early
        assert not late.done()
        first.clock.move(15)
        with pytest.raises(InvalidRequest):
            await late

    asyncio.run(scenario())


def test_a_stop_is_not_mistaken_for_a_deadline() -> None:
    async def scenario() -> None:
        task = asyncio.ensure_future(Reading().read([chunk(b"x")]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
