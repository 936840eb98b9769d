"""Keeps a broker registered with every name server.

Owns one task for each name server: it registers, heartbeats, and says goodbye at the stop.

Invariants: a name server that is down costs the others nothing; at most one question is under way to each; a
change is registered at once, but the table of topics at most once in `LEAST_BETWEEN_S`; a stop lasts no
longer than one question; whoever refuses a master for one of a higher epoch is believed.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from ha_replicator.http_question import HttpAnswer
from ha_replicator.identity import MAX_EPOCH_STEP
from ha_replicator.nameserver.registration import BrokerRegistration
from ha_replicator.nameserver.registration_proof import RegistrationProof

HEARTBEAT_S = 30.0
LEAST_BETWEEN_S = 1.0
_ILLEGAL = 422
FIRST_PAUSE_S = 1.0

log = logging.getLogger("lakemq.nameserver")


class Ask(Protocol):
    """Asks a name server; as :func:`ha_replicator.http_question.ask`, which is told whom to believe."""

    def __call__(
        self, endpoint: str, path: str, *, method: str, body: bytes, headers: dict[str, str]
    ) -> Awaitable[HttpAnswer]:
        """Returns the answer."""


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """Whether one name server has the broker registered.

    Attributes:
        registered: The last question was answered well.
        failure: Why it was not; None when it was, or none was asked yet.
    """

    nameserver: str
    registered: bool
    failure: str | None


class _Place(NamedTuple):
    """Under which name a name server knows this broker."""

    broker_name: str
    broker_id: int
    store_id: str


class _Refused(Exception):
    """The name server answered, and does not take the registration.

    Attributes:
        epoch: Of the master that is registered in this one's place; 0: it did not say so.
    """

    def __init__(self, what: str, epoch: int) -> None:
        super().__init__(what)
        self.epoch = epoch


class Registrar:
    """Registers one broker.

    Args:
        nameservers: ``http://host:port`` or ``https://host:port`` of each.
        describe: Says what the broker is and holds now; None: nothing that anybody should ask.
        secret: The cluster's, or None.
        question: Asks a name server.
        on_epoch: Told of the epoch of a master that is registered in this one's place.
        every_s: Seconds between heartbeats.
        first_pause_s: Before the second try where the first fails; it grows up to ``every_s``.
        least_between_s: Between two changes that are registered.
        now_ms: Epoch milliseconds.
        pause: Waits so many seconds; given in tests.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        describe: Callable[[], Awaitable[BrokerRegistration | None]],
        secret: bytes | None,
        *,
        question: Ask,
        on_epoch: Callable[[int], None] = lambda epoch: None,
        every_s: float = HEARTBEAT_S,
        first_pause_s: float = FIRST_PAUSE_S,
        least_between_s: float = LEAST_BETWEEN_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        pause: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        self._describe = describe
        self._proof = None if secret is None else RegistrationProof(secret)
        self._question = question
        self._on_epoch = on_epoch
        self._every_s = every_s
        self._first_pause_s = first_pause_s
        self._least_between_s = least_between_s
        self._now_ms = now_ms
        self._pause = pause
        self._last_ms = 0
        self._changes = {nameserver: asyncio.Event() for nameserver in dict.fromkeys(nameservers)}
        self._known_as: dict[str, _Place] = {}
        self._sender = secrets.token_hex(8)
        self._failures: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to register."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(nameserver)) for nameserver in self._changes]

    def changed(self) -> None:
        """Says that the broker is, or holds, something else now."""
        for change in self._changes.values():
            change.set()

    def status(self) -> list[RegistrationStatus]:
        """Returns whether each name server has the broker registered."""
        return [
            RegistrationStatus(
                name, name in self._known_as and name not in self._failures, self._failures.get(name)
            )
            for name in self._changes
        ]

    async def stop(self) -> None:
        """Unregisters everywhere, and ends."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        goodbyes = [self._unregister(name, known_as) for name, known_as in self._known_as.items()]
        self._known_as = {}
        await asyncio.gather(*goodbyes)

    async def _keep(self, nameserver: str) -> None:
        change = self._changes[nameserver]
        known_version: str | None = None
        pause_s = self._first_pause_s
        while True:
            change.clear()
            try:
                registration = await self._describe()
                known_version = await self._register(nameserver, registration, known_version)
            except (OSError, ValueError, TimeoutError, _Refused) as error:
                known_version = None  # it may have lost all it knew
                if isinstance(error, _Refused):
                    self._known_as.pop(nameserver, None)  # the place is another's
                    if error.epoch:
                        self._on_epoch(error.epoch)
                self._note(nameserver, _in_words(error))
                wait_s, pause_s = pause_s, min(2 * pause_s, self._every_s)
            else:
                self._note(nameserver, None)
                wait_s, pause_s = self._every_s, self._first_pause_s
            least_s = min(self._least_between_s, wait_s)
            await self._pause(least_s)
            await self._pause_until(change, wait_s - least_s)

    async def _pause_until(self, change: asyncio.Event, at_most_s: float) -> None:
        loop = asyncio.get_running_loop()
        waits = loop.create_task(change.wait()), loop.create_task(self._pause(at_most_s))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _register(
        self, nameserver: str, registration: BrokerRegistration | None, known_version: str | None
    ) -> str | None:
        """Registers, with the topics where they are not known; returns the version that is known now."""
        key = None if registration is None else _place_of(registration)
        before = self._known_as.get(nameserver)
        if before is not None and before != key:
            # It was promoted, or is the master no more: its old place is nobody's, or another's.
            del self._known_as[nameserver]
            await self._unregister(nameserver, before)
        if registration is None or key is None:
            return None
        topics = known_version != registration.data_version
        answer = await self._put(nameserver, registration, topics=topics)
        if answer.content.get("topics_wanted") is True and not topics:
            answer = await self._put(nameserver, registration, topics=True)
        self._known_as[nameserver] = key
        return registration.data_version

    async def _put(self, nameserver: str, registration: BrokerRegistration, *, topics: bool) -> HttpAnswer:
        content = asdict(registration)
        del content["broker_name"], content["broker_id"]
        content["topics"] = (
            [{"topic": topic, **_given(queues)} for topic, queues in (content["topics"] or {}).items()]
            if topics
            else None
        )
        if not registration.log_parted:
            del content["log_parted"]  # an older release may not know it
        path = _path_of(_place_of(registration))
        answer = await self._send("PUT", nameserver, path, json.dumps(content).encode())
        ordered = [topic for topic in content["topics"] or () if "order_conf" in topic]
        if answer.status == _ILLEGAL and ordered:
            # An older release refuses the whole for what it does not know.
            for topic in ordered:
                del topic["order_conf"]
            answer = await self._send("PUT", nameserver, path, json.dumps(content).encode())
            if answer.status == 200:
                log.warning("name server hears of no ordered topics", extra={"fields": {"url": nameserver}})
        if answer.status != 200:
            raise _Refused(_refusal(answer), _epoch_beyond(registration, answer))
        return answer

    async def _unregister(self, nameserver: str, known_as: _Place) -> None:
        # A name server that is gone forgets by itself.
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            path = f"{_path_of(known_as)}?store_id={quote(known_as.store_id, safe='')}"
            await self._send("DELETE", nameserver, path, b"")

    async def _send(self, method: str, nameserver: str, path: str, body: bytes) -> HttpAnswer:
        headers: dict[str, str] = {}
        if self._proof is not None:
            # Never the time of an earlier one: that would be a repeat.
            self._last_ms = max(self._now_ms(), self._last_ms + 1)
            headers["Authorization"] = self._proof.authorization(
                method, path, body, self._last_ms, self._sender
            )
        return await self._question(nameserver, path, method=method, body=body, headers=headers)

    def _note(self, nameserver: str, failure: str | None) -> None:
        before = self._failures.get(nameserver)
        if failure is None:
            self._failures.pop(nameserver, None)
            if before is not None:
                log.warning("name server takes registrations again", extra={"fields": {"url": nameserver}})
        elif failure != before:
            self._failures[nameserver] = failure
            fields: dict[str, Any] = {"url": nameserver, "reason": failure}
            log.warning("not registered with a name server", extra={"fields": fields})


def _given(queues: dict[str, Any]) -> dict[str, Any]:
    """Without what a name server of an older version does not know, where there is nothing to say."""
    return {name: value for name, value in queues.items() if value is not None}


def _place_of(registration: BrokerRegistration) -> _Place:
    return _Place(registration.broker_name, registration.broker_id, registration.store_id)


def _path_of(place: _Place) -> str:
    return f"/api/v1/brokers/{quote(place.broker_name, safe='')}/{place.broker_id}"


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _epoch_beyond(registration: BrokerRegistration, answer: HttpAnswer) -> int:
    """The epoch of the other master for which this one was refused; 0 where it is no such refusal."""
    epoch = answer.content.get("epoch")
    if answer.content.get("code") != "BROKER_CONFLICT" or type(epoch) is not int:
        return 0
    return epoch if registration.epoch < epoch <= registration.epoch + MAX_EPOCH_STEP else 0


def _refusal(answer: HttpAnswer) -> str:
    code, detail = answer.content.get("code"), answer.content.get("detail")
    return f"it answered {answer.status} {code!a:.60}: {detail!a:.300}"
