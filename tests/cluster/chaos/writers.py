"""Writer threads that load a broker over HTTP and journal every request before and after.

Owns the shape of the load: single messages, JSON, NDJSON and Arrow batches, some with an Idempotency-Key. A
writer waits for each answer before its next request, so the order it sent is the order it may expect. A
request that got no answer is left unknown, or, when it carried an Idempotency-Key, sent again after the
restart. One that was acknowledged under a key can be sent again at any time: it is kept for that.
"""

from __future__ import annotations

import http.client
import io
import json
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from tests.support.journal import Journal, Placement
from tests.support.processes import LOOPBACK

TOPICS: Final = ("chaos-a", "chaos-b")
NOT_STORED: Final = {400, 403, 404, 409, 413, 415, 422, 429, 507}
REQUEST_TIMEOUT_S: Final = 20.0
KEPT: Final = 15
"""Requests with a key that a writer can send again, old ones and new ones: a new one takes any's place."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that can be sent again unchanged."""

    topic: str
    ids: list[str]
    content_type: str
    body: bytes
    key: str | None


class Writer:
    """One journaled sequence of requests; a thread runs it for one round, it lives as long as its store.

    Args:
        name: of the writer and of its messages.
        journals: where its journal lies.
        seed: of what it sends.
        only_ok: only SEND_OK is an acknowledgement; what is stored less safely may be lost with its broker.
    """

    def __init__(self, name: str, journals: Path, seed: int, *, only_ok: bool = False) -> None:
        self._only_ok = only_ok
        self.name = name
        self._journal = Journal(journals, name)
        self._random = random.Random(seed)
        self._open: tuple[int, Request] | None = None
        self._kept: list[tuple[Request, list[Placement]]] = []
        self.requests = 0
        self.failure: str | None = None

    def run(self, port: int, stop: threading.Event) -> None:
        """Sends requests until told to stop or the broker is gone."""
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=REQUEST_TIMEOUT_S)
        try:
            while not stop.is_set():
                number, request = self._open or self._next()
                self._send(connection, number, request)
                self.requests += 1
        except (OSError, http.client.HTTPException):
            return  # the broker died; the request stays unknown or is repeated by its key
        finally:
            connection.close()

    def repeat(self, port: int) -> list[str]:
        """Sends acknowledged requests with a key again; returns which were answered otherwise."""
        wrong: list[str] = []
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=REQUEST_TIMEOUT_S)
        try:
            for request, placed in self._kept:
                response, body = _post(connection, request)
                answer = json.loads(body)
                if response.status != 200 or not answer["duplicate"] or _placed(answer) != placed:
                    wrong.append(f"{request.key}, first stored at {placed}: {response.status} {body[:300]!r}")
        finally:
            connection.close()
        return wrong

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()

    def _next(self) -> tuple[int, Request]:
        number = self._journal.next_number
        request = self._build(number)
        self._journal.sending(request.topic, request.ids)
        self._open = (number, request) if request.key else None
        return number, request

    def _build(self, number: int) -> Request:
        pick = self._random.random()
        count = 1 if pick < 0.5 else self._random.choice((2, 7, 40))
        ids = [f"{self.name}-{number}-{at}" for at in range(count)]
        bodies = [f"{id_} {'x' * self._random.choice((0, 10, 200, 3000))}" for id_ in ids]
        topic = self._random.choice(TOPICS)
        key = f"{self.name}-{number}" if self._random.random() < 0.3 else None
        messages: list[dict[str, Any]] = [
            {"body": body, "keys": [id_]} for id_, body in zip(ids, bodies, strict=True)
        ]
        for message in messages:
            if self._random.random() < 0.3:
                message["tags"] = self._random.choice("abc")
        if count == 1:
            return Request(topic, ids, "application/json", json.dumps(messages[0]).encode(), key)
        if pick < 0.7:
            data = json.dumps({"messages": messages}).encode()
            return Request(topic, ids, "application/json", data, key)
        if pick < 0.9:
            data = "".join(json.dumps(message) + "\n" for message in messages).encode()
            return Request(topic, ids, "application/x-ndjson", data, key)
        return Request(topic, ids, "application/vnd.apache.arrow.stream", _arrow(bodies, ids), key)

    def _send(self, connection: http.client.HTTPConnection, number: int, request: Request) -> None:
        response, answer = _post(connection, request)
        self._open = None
        if response.status in (200, 202):
            result = json.loads(answer)
            if result["status"] == "SEND_OK" or not self._only_ok:
                self._journal.answered(number, "ok", _placed(result))
                self._keep(request, _placed(result))
            else:
                self._journal.answered(number, "unknown")
        elif response.status in NOT_STORED:
            self._journal.answered(number, "failed")
            self.failure = f"{response.status} {answer[:300]!r}"
        else:
            self._journal.answered(number, "unknown")
            self.failure = f"{response.status} {answer[:300]!r}"

    def _keep(self, request: Request, placed: list[Placement]) -> None:
        if request.key is None:
            return
        if len(self._kept) == KEPT:
            self._kept.pop(self._random.randrange(KEPT))
        self._kept.append((request, placed))


def _post(connection: http.client.HTTPConnection, request: Request) -> tuple[http.client.HTTPResponse, bytes]:
    headers = {"Content-Type": request.content_type}
    if request.key:
        headers["Idempotency-Key"] = request.key
    path = f"/api/v1/topics/{quote(request.topic, safe='')}/messages"
    connection.request("POST", path, request.body, headers)
    response = connection.getresponse()
    return response, response.read()


def _arrow(bodies: list[str], ids: list[str]) -> bytes:
    table = pa.table(
        {"body": pa.array([body.encode() for body in bodies], pa.binary()), "keys": pa.array(ids)}
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _placed(answer: dict[str, Any]) -> list[Placement]:
    if "queues" in answer:
        return [
            (queue["queue_id"], queue["first_queue_offset"], queue["count"]) for queue in answer["queues"]
        ]
    return [(answer["queue_id"], answer["queue_offset"], 1)]
