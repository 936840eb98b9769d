"""GET /api/v1/topics/{topic}/queues/{queue_id}/messages, as a raw ASGI function.

Owns the way of a pull: read, hold it if nothing is there, read again, answer as JSON or Arrow. What
never breaks: only confirmed messages leave; a held pull ends when a message arrives, its time is up,
its client goes, or the broker stops. app.py calls it before Starlette's router; openapi.py documents
it by hand.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

from starlette.types import Message, Receive, Scope, Send

from ingest_api.arrivals import Arrivals
from ingest_api.body import ClientGone
from ingest_api.bulk_pool import ReadPool
from ingest_api.metrics import BrokerMetrics
from ingest_api.pull_query import ARROW, PullQuery, read_pull
from ingest_api.refusals import Refusals
from ingest_api.whole_answer import WholeJson
from store_native import Slice, Store

# A pull this close to the end of its queue reads what was just written: in memory, in microseconds.
_WARM_MESSAGES = 20_000
_INLINE_BYTES = 512 << 10


class PullPath:
    """Reads slices of queues.

    Args:
        store: What is read.
        arrivals: Holds pulls.
        reads: Runs Arrow reads and reads far from the end.
        metrics: Counts.
        refusals: Answers errors.
        max_wait_ms: The longest long poll.
    """

    def __init__(
        self,
        store: Store,
        arrivals: Arrivals,
        reads: ReadPool,
        metrics: BrokerMetrics,
        refusals: Refusals,
        max_wait_ms: int,
    ) -> None:
        self._store = store
        self._arrivals = arrivals
        self._reads = reads
        self._metrics = metrics
        self._refusals = refusals
        self._max_wait_ms = max_wait_ms
        self._ok = WholeJson(200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, topic: str, queue_id: str) -> None:
        """Handles one request; topic and queue are the path's segments, not yet checked."""
        started = time.perf_counter()
        try:
            query = read_pull(topic, queue_id, scope["query_string"], scope["headers"], self._max_wait_ms)
            piece = await self._read(query)
            if query.wait_ms and piece.status in ("NO_NEW_MSG", "NO_MATCHED_MSG"):
                piece = await self._hold(query, piece, receive)
            messages = piece.messages
            if not query.arrow:
                messages = _json_answer(piece, messages)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the last frame: every error becomes an answer here
            await self._refusals.refuse(error, scope, receive, send, None, False)
            return
        self._metrics.pulled(topic, query.group, piece.count, len(messages))
        if query.arrow:
            await send(_arrow_start(piece, len(messages)))
            await send({"type": "http.response.body", "body": messages})
        else:
            await self._ok.send(send, messages)
        if not query.wait_ms:
            took_ms = (time.perf_counter() - started) * 1000
            self._metrics.latency_ms["pull"].observe(took_ms)
            self._refusals.slow(scope, 200, took_ms)

    async def _read(self, query: PullQuery) -> Slice:
        if query.arrow:
            return await self._reads.run(self._read_arrow, query)
        _, end = self._store.queue_bounds(query.topic, query.queue_id)
        if end - query.offset <= _WARM_MESSAGES and query.max_bytes <= _INLINE_BYTES:
            return self._read_json(query)
        return await self._reads.run(self._read_json, query)

    def _read_json(self, query: PullQuery) -> Slice:
        return self._store.read_json(
            query.topic,
            query.queue_id,
            query.offset,
            max_messages=query.max_messages,
            max_bytes=query.max_bytes,
            tags=query.tags,
        )

    def _read_arrow(self, query: PullQuery) -> Slice:
        return self._store.read_ipc(
            query.topic,
            query.queue_id,
            query.offset,
            end_offset=query.end_offset,
            max_messages=query.max_messages,
            max_bytes=query.max_bytes,
            tags=query.tags,
            columns=query.columns,
        )

    async def _hold(self, query: PullQuery, piece: Slice, receive: Receive) -> Slice:
        """Waits for messages that match, until the pull's time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + query.wait_ms / 1000
        queue = (query.topic, query.queue_id)
        gone = loop.create_task(_disconnected(receive))
        self._metrics.held_pulls += 1
        try:
            while loop.time() < deadline and not self._arrivals.closed:
                if piece.status == "NO_MATCHED_MSG":
                    # What is passed over need not be looked at again, whoever asks next.
                    query = replace(query, offset=piece.next_offset)
                    piece = await self._read(query)
                    if piece.status == "NO_MATCHED_MSG":
                        await asyncio.sleep(0)
                        continue
                if piece.status != "NO_NEW_MSG":
                    break
                arrival = self._arrivals.wait_for(queue)
                try:
                    piece = await self._read(query)
                    if piece.status == "NO_NEW_MSG":
                        await asyncio.wait(
                            (arrival, gone),
                            timeout=deadline - loop.time(),
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                        if gone.done():
                            # Closed, or only its side of the connection: then it reads what there is.
                            break
                        if arrival.done():
                            piece = await self._read(query)
                finally:
                    self._arrivals.forget(queue, arrival)
        finally:
            self._metrics.held_pulls -= 1
            gone.cancel()
        return piece


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _json_answer(piece: Slice, messages: bytes) -> bytes:
    damaged = b'"damaged":%s,' % json.dumps(piece.damaged).encode() if piece.damaged else b""
    return (
        b'{"status":"%s","next_offset":%d,"min_offset":%d,"max_offset":%d,"suggested_broker_id":0,%s"messages":%s}'
        % (
            piece.status.encode(),
            piece.next_offset,
            piece.min_offset,
            piece.max_offset,
            damaged,
            messages or b"[]",
        )
    )


def _arrow_start(piece: Slice, length: int) -> Message:
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
            (b"x-lakemq-suggested-broker-id", b"0"),
        ],
    }
