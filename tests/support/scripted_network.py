"""A broker behind a network that loses answers, refuses and is slow, as a test says, request by request.

Owns the requests that wait for the test's word, and what the broker they reach has stored: a message a line,
once for each Idempotency-Key. It takes the place of a client's connections; nothing leaves the process.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import urllib3
from urllib3.exceptions import NewConnectionError, ProtocolError

from lakemq.client import Client
from lakemq.client.transport import Transport
from tests.support.turns import Turns

Fate = Literal["answered", "lost", "busy", "unsent", "not the broker's", "short", "crash", "too large"]
ENDPOINT = "http://127.0.0.1:1"
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Answered:
    """What a client sees of an HTTP answer."""

    status: int
    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """One attempt of a send, which waits for the test's word."""

    topic: str
    lines: list[bytes]
    key: str | None
    full: bool
    fate: queue.SimpleQueue[Fate | int] = field(default_factory=queue.SimpleQueue)


class ScriptedNetwork:
    """The connections of a client: ``urlopen`` and ``close`` are all it uses of them.

    Args:
        turns: Whose threads send; None: those of the machine.
    """

    def __init__(self, turns: Turns | None = None) -> None:
        self._turns = turns
        self.stored: dict[str, list[bytes]] = {}
        self.closed = False
        self._answers: dict[str, dict[str, Any]] = {}
        self._arrived: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._for_all: Fate | None = None
        self._changing = threading.Lock()

    def client(self, **options: Any) -> Client:
        """A client whose requests come here."""
        return _ScriptedClient(self, options)

    def arrived(self) -> Request:
        """The next request; one that does not come fails the test.

        Raises:
            AssertionError: None came.
        """
        if self._turns is not None:
            self._turns.settle()
        try:
            return self._arrived.get(timeout=_WAIT_S if self._turns is None else 0)
        except queue.Empty:
            raise AssertionError("what is due was not sent") from None

    def is_idle(self) -> bool:
        """Whether no request has come that the test has not seen."""
        return self._arrived.empty()

    def decide_all(self, fate: Fate, seen: Request | None = None) -> None:
        """Gives the request under way, and all that come, the same fate."""
        with self._changing:
            self._for_all = fate
            for request in [seen] if seen is not None else []:
                request.fate.put(fate)
            while not self._arrived.empty():
                self._arrived.get().fate.put(fate)

    def urlopen(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str], **others: object
    ) -> Answered:
        """Called by the transport; the text of a send's address is ``/api/v1/topics/T/messages?...``."""
        assert method == "POST"
        path, _, query = url.partition("?")
        key = headers.get("Idempotency-Key")
        request = Request(path.split("/")[4], body.splitlines(), key, query == "results=full")
        with self._changing:
            if self._for_all is None:
                self._arrived.put(request)
            else:
                request.fate.put(self._for_all)
        if self._turns is not None:
            self._turns.block(lambda: not request.fate.empty())
        fate = request.fate.get(timeout=6 * _WAIT_S)
        if isinstance(fate, int):
            return _problem(400, "ARGUMENT_ILLEGAL", index=fate)
        return self._meet(request, fate)

    def close(self) -> None:
        """Called by the transport."""
        self.closed = True

    def _meet(self, request: Request, fate: Fate) -> Answered:
        if fate == "unsent":
            raise NewConnectionError(cast(Any, None), "refused")
        if fate == "busy":
            return _problem(503, "SYSTEM_BUSY")
        if fate == "too large":
            return _problem(413, "REQUEST_TOO_LARGE")
        if fate == "crash":
            raise RuntimeError("a defect")
        answer = self._store(request)
        if fate == "lost":
            raise ProtocolError("connection broken", ConnectionResetError(104, "reset"))
        if fate == "not the broker's":
            return Answered(502, b"<html>Bad gateway</html>")
        if fate == "short":
            answer = {**answer, "results": answer["results"][:-1]}
        return Answered(200, json.dumps(answer).encode())

    def _store(self, request: Request) -> dict[str, Any]:
        if request.key is not None and request.key in self._answers:
            return {**self._answers[request.key], "duplicate": True}
        log = self.stored.setdefault(request.topic, [])
        results = [_result(request.topic, len(log) + n) for n in range(len(request.lines))]
        log += request.lines
        answer: dict[str, Any] = {"status": "SEND_OK", "count": len(results), "queues": []}
        if request.full:
            answer["results"] = list(results)
        elif len(results) == 1:
            answer = results[0]
        if request.key is not None:
            self._answers[request.key] = answer
        return answer


class _ScriptedClient(Client):
    def __init__(self, network: ScriptedNetwork, options: dict[str, Any]) -> None:
        super().__init__(ENDPOINT, **options)
        self._transport = Transport(
            ENDPOINT,
            **self._settings,
            pause=lambda seconds: None,
            pool=cast(urllib3.HTTPConnectionPool, network),
        )


def _result(topic: str, queue_offset: int) -> dict[str, Any]:
    return {
        "status": "SEND_OK",
        "message_id": f"m{queue_offset}",
        "offset_message_id": f"o{queue_offset}",
        "topic": topic,
        "broker_name": "b",
        "queue_id": 0,
        "queue_offset": queue_offset,
    }


def _problem(status: int, code: str, **context: object) -> Answered:
    return Answered(status, json.dumps({"code": code, "detail": "as the test says", **context}).encode())
