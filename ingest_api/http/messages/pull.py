"""GET /api/v1/topics/{topic}/queues/{queue_id}/messages, as a raw ASGI function.

Owns the path of a pull from its target to its answer, JSON or Arrow; reading and holding are the broker
core's. openapi/document.py describes it by hand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.pull_service import PullService
from ingest_api.broker.slave_reads import SlaveReads
from ingest_api.http.messages.pull_query import ARROW, read_pull
from ingest_api.http.request.body import ClientGone
from ingest_api.http.responses.error_responses import ErrorResponses
from ingest_api.http.responses.raw_response import JsonResponse
from store_native import Slice
from store_native.names import MAY_BE_BEHIND_HEADER, SUGGESTED_BROKER_HEADER

_SUGGESTED = SUGGESTED_BROKER_HEADER.lower().encode()
_MAY_BE_BEHIND = (MAY_BE_BEHIND_HEADER.lower().encode(), b"true")


class PullPath:
    """Answers pulls.

    Args:
        service: Reads.
        metrics: Counts the time it takes.
        errors: Answers errors.
        max_wait_ms: The longest long poll.
        may_be_behind: Whether the broker may lack the end of what was shown in its place.
        log_epoch: The epoch of the log's newest bytes.
        slave_reads: Says where a reader goes on.
    """

    def __init__(
        self,
        service: PullService,
        metrics: BrokerMetrics,
        errors: ErrorResponses,
        max_wait_ms: int,
        may_be_behind: Callable[[], bool],
        log_epoch: Callable[[], int],
        slave_reads: SlaveReads,
    ) -> None:
        self._service = service
        self._metrics = metrics
        self._errors = errors
        self._max_wait_ms = max_wait_ms
        self._may_be_behind = may_be_behind
        self._log_epoch = log_epoch
        self._slave_reads = slave_reads
        self._ok = JsonResponse(200)
        self._others: dict[tuple[bool, int], JsonResponse] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send, topic: str, queue_id: str) -> None:
        """Handles one request; topic and queue are the path's segments, not yet checked."""
        started = time.perf_counter()
        try:
            request = read_pull(topic, queue_id, scope["query_string"], scope["headers"], self._max_wait_ms)
            behind = self._may_be_behind()  # before it reads: what is shown in between is no harm
            piece, messages = await self._service.pull(request, partial(_disconnected, receive))
            suggested = self._slave_reads.suggested(piece)
            if not request.arrow:
                messages = _json_answer(piece, messages, suggested)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the last frame: every error becomes an answer here
            await self._errors.respond(error, scope, receive, send, None)
            return
        self._service.count(request, piece, len(messages))
        if request.arrow:
            # After all was read: no message is of a later epoch.
            start = _arrow_start(piece, len(messages), self._log_epoch(), suggested)
            if behind:
                start["headers"].append(_MAY_BE_BEHIND)
            await send(start)
            await send({"type": "http.response.body", "body": messages})
        else:
            ok = self._other(behind, suggested) if behind or suggested else self._ok
            await ok.send(send, messages)
        if not request.wait_ms:
            took_ms = (time.perf_counter() - started) * 1000
            self._metrics.latency_ms["pull"].observe(took_ms)
            self._errors.log_slow(scope, 200, took_ms)

    def _other(self, behind: bool, suggested: int) -> JsonResponse:
        """An answer with something to say; there are as many as slaves, and twice that."""
        found = self._others.get((behind, suggested))
        if found is None:
            said = [_MAY_BE_BEHIND] if behind else []
            if suggested:
                said.append((_SUGGESTED, b"%d" % suggested))
            found = self._others[behind, suggested] = JsonResponse(200, *said)
        return found


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _json_answer(piece: Slice, messages: bytes, suggested: int) -> bytes:
    damaged = b'"damaged":%s,' % json.dumps(piece.damaged).encode() if piece.damaged else b""
    return (
        b'{"status":"%s","next_offset":%d,"min_offset":%d,"max_offset":%d,"suggested_broker_id":%d,%s"messages":%s}'
        % (
            piece.status.encode(),
            piece.next_offset,
            piece.min_offset,
            piece.max_offset,
            suggested,
            damaged,
            messages or b"[]",
        )
    )


def _arrow_start(piece: Slice, length: int, epoch: int, suggested: int) -> Message:
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", ARROW),
            (b"content-length", b"%d" % length),
            (b"x-lakemq-status", piece.status.encode()),
            (b"x-lakemq-next-offset", b"%d" % piece.next_offset),
            (b"x-lakemq-min-offset", b"%d" % piece.min_offset),
            (b"x-lakemq-max-offset", b"%d" % piece.max_offset),
            (b"x-lakemq-count", b"%d" % piece.count),
            (b"x-lakemq-damaged", json.dumps(piece.damaged).encode()),
            (_SUGGESTED, b"%d" % suggested),
            (b"x-lakemq-epoch", b"%d" % epoch),
        ],
    }
