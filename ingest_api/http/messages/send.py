"""POST /api/v1/topics/{topic}/messages, as a raw ASGI function.

Owns the path of a send from its head to its answer; what happens in between is the broker core's.

Invariants: an answer other than SEND_OK or a 202 status means nothing was stored.

A small request that arrived whole is stored and answered by the fast path, without a task; whatever is out of
the ordinary there takes the slow path. openapi/document.py describes both by hand.

Threads: the event loop.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Final, NamedTuple, Protocol

from starlette.types import Receive, Scope, Send

from ingest_api.broker.flush_wait import SendStatus
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.send_request import PayloadKind, SendRequest
from ingest_api.broker.send_service import Payload, SendService
from ingest_api.broker.settings import LimitSettings
from ingest_api.http.messages.content_encoding import expand
from ingest_api.http.messages.headers import SendHeaders, plain_kind, read_headers
from ingest_api.http.request.body import RETURNED, Body, BodyReader, ClientGone
from ingest_api.http.responses.error_responses import ErrorResponses
from ingest_api.http.responses.raw_response import JsonResponse
from store_native import Appended
from store_native.errors import Closed, InvalidRequest
from store_native.names import is_group_topic

RawHeaders = list[tuple[bytes, bytes]]

log = logging.getLogger("lakemq.broker")

_OK: Final = "SEND_OK"


class Connection(Protocol):
    """What a send on the fast path needs of its connection."""

    @property
    def client(self) -> tuple[str, int] | None:
        """Address and port of the other end."""

    def wait(self) -> None:
        """Says that the answer comes later."""

    def answer(self, head: bytes, body: bytes) -> None:
        """Writes the answer; a connection that is gone takes it silently."""

    def close(self) -> None:
        """Closes without an answer."""


class _Stored(NamedTuple):
    """A send that is in the log and not answered yet."""

    connection: Connection
    topic: str
    size: int
    started: float
    appended: Appended


class SendPath:
    """Receives what is posted and answers when it is safe enough.

    Args:
        service: Stores it.
        bodies: Reads bodies.
        metrics: Counts the time it takes.
        errors: Answers errors.
        limits: The bounds.
    """

    def __init__(
        self,
        service: SendService,
        bodies: BodyReader,
        metrics: BrokerMetrics,
        errors: ErrorResponses,
        limits: LimitSettings,
    ) -> None:
        self._service = service
        self._bodies = bodies
        self._metrics = metrics
        self._errors = errors
        self._limits = limits
        self._fast_path_bytes = min(limits.inline_bytes, limits.max_request_bytes)
        self._ok = JsonResponse(200)
        self._accepted = JsonResponse(202)
        self._one_way = JsonResponse(202, (b"preference-applied", b"respond-async"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send, topic: str) -> None:
        """Handles one request; ``topic`` is the path's segment, decoded but not yet checked."""
        started = time.perf_counter()
        body = Body()
        try:
            self._service.check()
            headers = read_headers(scope["headers"])
            self._check_length(topic, headers)
            full = scope["query_string"] != b"" and _wants_full(scope["query_string"])
            at_least = RETURNED if is_group_topic(topic) else 0
            await self._bodies.read(receive, headers.length, body, at_least)
            size = body.size
            request = SendRequest(
                topic,
                headers.kind,
                scope["client"],
                headers.idempotency_key,
                full,
                headers.fields,
                headers.order_version,
            )
            large = headers.coding is not None or size > self._limits.inline_bytes
            status, appended = await self._service.send(
                request,
                partial(self._take, body, headers.coding) if large else _joined(body),
                size,
                wait=not headers.one_way,
                on_stored=partial(self._forget, body),
            )
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the last frame: every error becomes an answer here
            body.chunks.clear()
            await self._errors.respond(error, scope, receive, send, body)
            return
        finally:
            self._forget(body)
        if headers.one_way:
            answers = self._one_way
        elif status == _OK:
            answers = self._ok
        else:
            answers = self._accepted
        await answers.send(send, appended.answer(status))
        took_ms = (time.perf_counter() - started) * 1000
        self._metrics.latency_ms["bulk_send" if large else "send"].observe(took_ms)
        self._errors.log_slow(scope, 200, took_ms)

    def fast_path(self, connection: Connection, topic: str, headers: RawHeaders, data: bytes) -> bool:
        """Stores and answers a request that has arrived whole, without a query string.

        Args:
            connection: Where it came from and where its answer goes.
            topic: As for a call.
            headers: As ASGI gives them.
            data: The body.

        Returns:
            False when the request has to take the slow path, which also finds the words for a refusal.
            Nothing was stored then.
        """
        started = time.perf_counter()
        size = len(data)
        service = self._service
        if size > self._fast_path_bytes or not service.is_open:
            return False
        one_way = False
        try:
            kind = plain_kind(headers)
            if kind is not None and kind is not PayloadKind.RAW:
                appended = service.append_plain(kind, topic, data, connection.client)
            else:
                found = read_headers(headers)
                if found.coding is not None:
                    return False
                request = SendRequest(
                    topic,
                    found.kind,
                    connection.client,
                    found.idempotency_key,
                    False,
                    found.fields,
                    found.order_version,
                )
                appended = service.append(request, data)
                one_way = found.one_way
        except Exception:  # noqa: BLE001 - it is raised again on the slow path, and answered there
            return False
        stored = _Stored(connection, topic, size, started, appended)
        try:
            if one_way:
                self._answer(stored, self._one_way, _OK)
            elif service.on_durable(appended, partial(self._flushed, stored)):
                connection.wait()
            else:
                self._answer(stored, self._ok, _OK)
        except Closed as error:
            connection.answer(*self._errors.render(error, _scope(connection, topic)))
        except Exception:  # noqa: BLE001 - it is stored, so the slow path would store it again
            _give_up(connection)
        return True

    def _flushed(self, stored: _Stored, outcome: SendStatus | Closed) -> None:
        """Ends the wait of a send for its flush, or for the replicas."""
        try:
            if isinstance(outcome, Closed):
                connection = stored.connection
                connection.answer(*self._errors.render(outcome, _scope(connection, stored.topic)))
            else:
                self._answer(stored, self._ok if outcome == _OK else self._accepted, outcome)
        except Exception:  # noqa: BLE001 - others wait behind this one
            _give_up(stored.connection)

    def _answer(self, stored: _Stored, answers: JsonResponse, status: SendStatus) -> None:
        connection, topic, size, started, appended = stored
        self._service.count(topic, appended, size)
        answer = appended.answer(status)
        connection.answer(answers.head(len(answer)), answer)
        took_ms = (time.perf_counter() - started) * 1000
        self._metrics.latency_ms["send"].observe(took_ms)
        if took_ms >= self._errors.slow_request_ms:
            self._errors.log_slow(_scope(connection, topic), 200, took_ms)

    def _check_length(self, topic: str, headers: SendHeaders) -> None:
        """Refuses a raw message by its Content-Length, which a look at the body would only confirm."""
        if headers.kind is PayloadKind.RAW and headers.coding is None and headers.length is not None:
            self._service.check_size(topic, headers.length)

    def _take(self, body: Body, coding: str | None) -> bytes:
        """Runs on a worker thread; joining a large body there releases the GIL too."""
        data = b"".join(body.chunks)
        body.chunks.clear()
        return data if coding is None else expand(data, coding, self._limits.max_request_bytes)

    def _forget(self, body: Body) -> None:
        body.chunks.clear()
        if body.reserved:
            self._bodies.release(body)


def _joined(body: Body) -> Payload:
    return body.chunks[0] if len(body.chunks) == 1 else b"".join(body.chunks)


def _scope(connection: Connection, topic: str) -> Scope:
    """What the access log says of a request that has no scope."""
    return {"method": "POST", "path": f"/api/v1/topics/{topic}/messages", "client": connection.client}


def _give_up(connection: Connection) -> None:
    """Closes the connection: the client learns nothing, and nothing false."""
    log.exception("a stored send cannot be answered")
    connection.close()


def _wants_full(query: bytes) -> bool:
    if query == b"results=full":
        return True
    if query == b"results=queues":
        return False
    raise InvalidRequest(
        "ARGUMENT_ILLEGAL", "the only query parameter of a send is results=full", parameter="results"
    )
