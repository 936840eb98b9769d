"""The hot path: POST /api/v1/topics/{topic}/messages, as a raw ASGI function.

Owns the way of a send from its head to its answer. What never breaks: an answer other than SEND_OK
or a 202 status means nothing was stored; SEND_OK means it is as safe as the flush mode says. app.py
calls it before Starlette's router; openapi.py documents it by hand.

A small body is parsed and appended on the event loop, because that takes microseconds. A large or
compressed one goes to a bounded pool (its parsing releases the GIL), so that a bulk load does not
hold up everybody's small sends. A small request that arrived whole is stored and answered by ``at_once``,
called by protocol.py, without a task; whatever is out of the ordinary there goes the long way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from starlette.types import Receive, Scope, Send

from ingest_api.ack_wait import AckWait, Outcome
from ingest_api.admission import Admission
from ingest_api.body import Body, BodyReader, ClientGone
from ingest_api.bulk_pool import BulkPool
from ingest_api.content_encoding import expand
from ingest_api.headers import BodyKind, RawMessage, SendHeaders, plain_kind, read_headers
from ingest_api.metrics import BrokerMetrics
from ingest_api.refusals import Refusals
from ingest_api.settings import LimitSettings
from ingest_api.whole_answer import WholeJson
from store_native import Appended, Store
from store_native.errors import Closed, InvalidRequest

RawHeaders = list[tuple[bytes, bytes]]

log = logging.getLogger("lakemq.broker")

_OK = b'{"status":"SEND_OK"'
_FLUSH_DISK_TIMEOUT = b'{"status":"FLUSH_DISK_TIMEOUT"'


class Connection(Protocol):
    """What a send that is answered at once needs of its connection."""

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
    """Stores what is posted and answers when it is safe enough.

    Args:
        store: Where messages go.
        ack: Holds answers back.
        admission: Turns away what does not fit.
        bodies: Reads bodies.
        bulk: Runs large appends.
        metrics: Counts.
        refusals: Answers errors.
        limits: The bounds.
    """

    def __init__(
        self,
        store: Store,
        ack: AckWait,
        admission: Admission,
        bodies: BodyReader,
        bulk: BulkPool,
        metrics: BrokerMetrics,
        refusals: Refusals,
        limits: LimitSettings,
    ) -> None:
        self._ack = ack
        self._admission = admission
        self._bodies = bodies
        self._bulk = bulk
        self._metrics = metrics
        self._refusals = refusals
        self._limits = limits
        self._at_once_bytes = min(limits.inline_bytes, limits.max_request_bytes)
        self._append_raw = store.append_message
        self._appends: dict[BodyKind, Callable[..., Appended]] = {
            BodyKind.JSON: store.append_json,
            BodyKind.NDJSON: store.append_ndjson,
            BodyKind.ARROW: store.append_arrow,
        }
        self._ok = WholeJson(200)
        self._accepted = WholeJson(202)
        self._one_way = WholeJson(202, (b"preference-applied", b"respond-async"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send, topic: str) -> None:
        """Handles one request; ``topic`` is the path's segment, decoded but not yet checked."""
        started = time.perf_counter()
        body = Body()
        expects = False
        entered = False
        try:
            self._admission.check()
            headers = read_headers(scope["headers"])
            expects = headers.expects
            self._check(headers)
            full = scope["query_string"] != b"" and _wants_full(scope["query_string"])
            await self._bodies.read(receive, headers.length, body)
            # Only now: who is slow to send its body takes nobody's place.
            self._admission.enter()
            entered = True
            size = body.size
            if headers.coding is None and size <= self._limits.inline_bytes:
                large = False
                data = body.chunks[0] if len(body.chunks) == 1 else b"".join(body.chunks)
                appended = self._append(topic, headers, data, full, scope["client"])
                del data
            else:
                large = True
                appended = await self._bulk.run(
                    self._append_large, topic, headers, body, full, scope["client"]
                )
            body.chunks.clear()
            if body.reserved:
                self._bodies.release(body)
            answers, prefix = self._ok, _OK
            if headers.one_way:
                answers = self._one_way
            elif (
                appended.waits
                and (safe := self._ack.sent(appended.end_offset)) is not None
                and not await safe
            ):
                answers, prefix = self._accepted, _FLUSH_DISK_TIMEOUT
                self._metrics.answered("FLUSH_DISK_TIMEOUT")
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the last frame: every error becomes an answer here
            body.chunks.clear()
            await self._refusals.refuse(error, scope, receive, send, body, expects)
            return
        finally:
            if entered:
                self._admission.leave()
            if body.reserved:
                self._bodies.release(body)
        if appended.duplicate:
            self._metrics.duplicates += 1
        else:
            self._metrics.sent(topic, appended.count, size)
        await answers.send(send, prefix + appended.tail)
        took_ms = (time.perf_counter() - started) * 1000
        self._metrics.latency_ms["bulk_send" if large else "send"].observe(took_ms)
        self._refusals.slow(scope, 200, took_ms)

    def at_once(self, connection: Connection, topic: str, headers: RawHeaders, data: bytes) -> bool:
        """Stores and answers a request that has arrived whole, without a query string.

        Args:
            connection: Where it came from and where its answer goes.
            topic: As for a call.
            headers: As ASGI gives them.
            data: The body.

        Returns:
            False when the request has to go the long way, which also finds the words for a refusal.
            Nothing was stored then.
        """
        started = time.perf_counter()
        size = len(data)
        if size > self._at_once_bytes or not self._admission.open:
            return False
        one_way = False
        try:
            kind = plain_kind(headers)
            if kind is not None and kind is not BodyKind.RAW:
                appended = self._appends[kind](topic, data, born_host=connection.client)
            else:
                found = read_headers(headers)
                if found.coding is not None:
                    return False
                appended = self._append(topic, found, data, False, connection.client)
                one_way = found.one_way
        except Exception:  # noqa: BLE001 - it is raised again on the long way, and answered there
            return False
        stored = _Stored(connection, topic, size, started, appended)
        try:
            if one_way:
                self._answer(stored, self._one_way, _OK)
            elif not appended.waits or self._ack.is_sent(appended.end_offset):
                self._answer(stored, self._ok, _OK)
            else:
                self._ack.tell_when_sent(appended.end_offset, partial(self._told, stored))
                connection.wait()
                self._admission.enter()
        except Closed as error:
            connection.answer(*self._refusals.whole(error, _scope(connection, topic)))
        except Exception:  # noqa: BLE001 - it is stored, so the long way would store it again
            _give_up(connection)
        return True

    def _told(self, stored: _Stored, outcome: Outcome) -> None:
        """Ends the wait of a send for its flush."""
        self._admission.leave()
        try:
            if outcome is True:
                self._answer(stored, self._ok, _OK)
            elif outcome is False:
                self._metrics.answered("FLUSH_DISK_TIMEOUT")
                self._answer(stored, self._accepted, _FLUSH_DISK_TIMEOUT)
            else:
                connection = stored.connection
                connection.answer(*self._refusals.whole(outcome, _scope(connection, stored.topic)))
        except Exception:  # noqa: BLE001 - others wait behind this one
            _give_up(stored.connection)

    def _answer(self, stored: _Stored, answers: WholeJson, prefix: bytes) -> None:
        connection, topic, size, started, appended = stored
        if appended.duplicate:
            self._metrics.duplicates += 1
        else:
            self._metrics.sent(topic, appended.count, size)
        answer = prefix + appended.tail
        connection.answer(answers.head(len(answer)), answer)
        took_ms = (time.perf_counter() - started) * 1000
        self._metrics.latency_ms["send"].observe(took_ms)
        if took_ms >= self._refusals.slow_request_ms:
            self._refusals.slow(_scope(connection, topic), 200, took_ms)

    def _check(self, headers: SendHeaders) -> None:
        """Refuses by Content-Length what a look at the body would only confirm."""
        if (
            headers.kind is BodyKind.RAW
            and headers.coding is None
            and headers.length is not None
            and headers.length > self._limits.max_message_bytes
        ):
            raise self._message_too_large(headers.length)
        self._bodies.check_length(headers.length)

    def _append(
        self, topic: str, headers: SendHeaders, data: bytes, full: bool, client: tuple[str, int] | None
    ) -> Appended:
        if headers.kind is BodyKind.RAW:
            return self._append_message(topic, headers, data, client)
        return self._appends[headers.kind](
            topic, data, born_host=client, idempotency_key=headers.idempotency_key, full_results=full
        )

    def _append_message(
        self, topic: str, headers: SendHeaders, data: bytes, client: tuple[str, int] | None
    ) -> Appended:
        if len(data) > self._limits.max_message_bytes:
            raise self._message_too_large(len(data))
        raw = headers.raw or RawMessage()
        return self._append_raw(
            topic,
            data,
            tags=raw.tags,
            keys=raw.keys,
            properties=raw.properties,
            sharding_key=raw.sharding_key,
            queue_id=raw.queue_id,
            flag=raw.flag,
            delay_level=raw.delay_level,
            message_id=raw.message_id,
            born_host=client,
            idempotency_key=headers.idempotency_key,
        )

    def _append_large(
        self, topic: str, headers: SendHeaders, body: Body, full: bool, client: tuple[str, int] | None
    ) -> Appended:
        """Runs on a worker thread; joining a large body there releases the GIL too."""
        data = b"".join(body.chunks)
        body.chunks.clear()
        if headers.coding is not None:
            data = expand(data, headers.coding, self._limits.max_request_bytes)
        return self._append(topic, headers, data, full, client)

    def _message_too_large(self, size: int) -> InvalidRequest:
        limit = self._limits.max_message_bytes
        return InvalidRequest(
            "MESSAGE_TOO_LARGE",
            f"the message has {size} bytes, at most {limit} are taken",
            limit=limit,
            size=size,
        )


def _scope(connection: Connection, topic: str) -> Scope:
    """What the access log says of a request that has no scope."""
    return {"method": "POST", "path": f"/api/v1/topics/{topic}/messages", "client": connection.client}


def _give_up(connection: Connection) -> None:
    """Closes the connection: whoever waits there learns nothing, and nothing false."""
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
