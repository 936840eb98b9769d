"""A broker that registers with name servers, without a socket and in a time of its own.

Owns the clock whose pauses end as a test says, the name servers that are asked, and what they were asked.

Invariants: nothing waits for real time; when :meth:`Clock.advance` returns, all is done that can be by then.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from ha_replicator.http_question import HttpAnswer
from ha_replicator.nameserver import (
    BrokerRegistration,
    NameServer,
    QueueData,
    Registrar,
    RouteTables,
    SignedRequest,
)
from store_native.errors import LakeMQError
from store_native.order_conf import OrderConf

SECRET = b"a secret of the cluster"
ONE, TWO = "http://one:9876", "http://two:9876"
ADDRESS = "http://broker-a:8090"
_TURNS = 60
_BEGAN_MS = 1_700_000_000_000


class Clock:
    """Seconds since the test began; pauses end while it is advanced."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = count()
        self._pauses: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return _BEGAN_MS + round(self.now * 1000)

    async def pause(self, seconds: float) -> None:
        """Waits until the clock was advanced so far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._pauses, (self.now + seconds, next(self._numbers), over))
        await over

    async def advance(self, seconds: float = 0.0) -> None:
        """Lets so much time pass, pause by pause; 0: what needs no time is done."""
        await _settle()
        end = self.now + seconds
        while self._pauses and self._pauses[0][0] <= end + 1e-9:
            self.now, _, over = heapq.heappop(self._pauses)
            if not over.done():
                over.set_result(None)
                await _settle()
        self.now = end


async def _settle() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class Asked(NamedTuple):
    """One question that a name server was asked."""

    at: float
    endpoint: str
    method: str
    path: str
    content: dict[str, Any]
    authorization: str | None

    @property
    def with_table(self) -> bool:
        return self.content.get("topics") is not None


class Names:
    """Name servers: down, of an older release, or with an answer of their own, as the test says.

    Attributes:
        down: Those that nobody can reach.
        old: Those that know no ordered topics.
        silent: Those that answer no sooner than their event is set.
        answers: By name server, what it answers or fails with next, in place of what it would say.
        asked: All questions, in turn.
    """

    def __init__(self, *urls: str) -> None:
        self.clock = Clock()
        self.servers: dict[str, NameServer] = {}
        for url in urls:
            self.restart(url)
        self.down: set[str] = set()
        self.old: set[str] = set()
        self.silent: dict[str, asyncio.Event] = {}
        self.answers: dict[str, list[HttpAnswer | Exception]] = {}
        self.asked: list[Asked] = []

    def restart(self, url: str) -> None:
        tables = RouteTables(clock=lambda: self.clock.now)
        self.servers[url] = NameServer(tables, SECRET, self.clock.now_ms)

    def addresses(self, url: str) -> dict[int, str]:
        return {k: v for data in self.servers[url].tables.brokers() for k, v in data.addresses.items()}

    def asked_of(self, url: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.endpoint == url]

    def times(self) -> list[float]:
        return [round(asked.at, 6) for asked in self.asked]

    async def ask(
        self, endpoint: str, path: str, *, method: str, body: bytes, headers: dict[str, str]
    ) -> HttpAnswer:
        content: dict[str, Any] = json.loads(body) if body else {}
        authorization = headers.get("Authorization")
        self.asked.append(
            Asked(self.clock.now, endpoint, method, path, json.loads(body) if body else {}, authorization)
        )
        await asyncio.sleep(0)
        if endpoint in self.silent:
            await self.silent[endpoint].wait()
        if self.answers.get(endpoint):
            answer = self.answers[endpoint].pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if endpoint in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        request = SignedRequest(method, path, body, authorization or "", from_this_machine=False)
        try:
            return self._answer(self.servers[endpoint], content, request, old=endpoint in self.old)
        except LakeMQError as error:
            return HttpAnswer(403, {"code": error.code, "detail": error.detail, **error.context})

    def _answer(
        self, server: NameServer, content: dict[str, Any], request: SignedRequest, *, old: bool
    ) -> HttpAnswer:
        place, _, query = request.path.partition("?store_id=")
        *_, name, broker_id = place.split("/")
        if request.method == "DELETE":
            server.unregister(name, int(broker_id), request, query)
            return HttpAnswer(204, {})
        topics = content.pop("topics")
        if old and any("order_conf" in topic for topic in topics or ()):
            return HttpAnswer(422, {"code": "ARGUMENT_ILLEGAL", "detail": "/topics/1/order_conf: extra"})
        table = None if topics is None else {t.pop("topic"): _queue_data(t) for t in topics}
        given = BrokerRegistration(broker_name=name, broker_id=int(broker_id), topics=table, **content)
        return HttpAnswer(200, {"topics_wanted": server.register(given, request).topics_wanted})


def _queue_data(said: dict[str, Any]) -> QueueData:
    conf = said.pop("order_conf", None)
    return QueueData(**said, order_conf=None if conf is None else OrderConf(**conf))


class Described:
    """A broker that says what it is."""

    def __init__(self) -> None:
        self.now: BrokerRegistration | None = BrokerRegistration(
            "c", "broker-a", 0, ADDRESS, "1", {"t": QueueData(4, 4, 6)}, store_id="own"
        )

    @property
    def registration(self) -> BrokerRegistration:
        assert self.now is not None
        return self.now

    async def __call__(self) -> BrokerRegistration | None:
        await asyncio.sleep(0)
        return self.now


@dataclass(frozen=True, slots=True)
class Scene:
    """What a test sees while its broker is registered."""

    names: Names
    registrar: Registrar
    broker: Described
    others: frozenset[asyncio.Task[Any]]

    async def advance(self, seconds: float = 0.0) -> None:
        await self.names.clock.advance(seconds)

    async def change(self, after_s: float = 1.0) -> None:
        """Says that something changed when enough time is over since the last change, and waits for it."""
        await self.advance(after_s)
        self.registrar.changed()
        await self.advance()

    def tasks(self) -> set[asyncio.Task[Any]]:
        """Returns what runs besides the test."""
        return asyncio.all_tasks() - self.others

    def registered(self) -> list[bool]:
        return [status.registered for status in self.registrar.status()]

    def failure(self, at: int = 0) -> str | None:
        return self.registrar.status()[at].failure


def run(
    names: Names,
    scenario: Callable[[Scene], Awaitable[None]],
    *,
    secret: bytes | None = SECRET,
    nameservers: Sequence[str] | None = None,
    broker: Described | None = None,
    **settings: Any,
) -> None:
    """Runs a scenario while a broker registers, then stops the broker.

    Args:
        names: The name servers.
        scenario: Called when each was asked for the first time.
        secret: The broker's.
        nameservers: As the broker was given them; else each once.
        broker: What registers.
        settings: Of the registrar.
    """
    broker = broker or Described()

    async def main() -> None:
        registrar = Registrar(
            list(names.servers) if nameservers is None else nameservers,
            broker,
            secret,
            question=names.ask,
            **{"now_ms": names.clock.now_ms, "pause": names.clock.pause, **settings},
        )
        others = frozenset(asyncio.all_tasks())
        registrar.start()
        try:
            await names.clock.advance()
            await scenario(Scene(names, registrar, broker, others))
        finally:
            await registrar.stop()

    async def bounded() -> None:
        await asyncio.wait_for(main(), 20)

    asyncio.run(bounded())
