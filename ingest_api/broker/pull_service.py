"""Reads slices of queues for consumers, and holds pulls until there is something to read.

Owns the path of a pull from its request to the slice.

Invariants: only confirmed messages leave; a held pull ends when a message arrives that matches, its time is
up, its consumer goes, or the broker stops.

Threads: the event loop. Reads close to a queue's end are done on it, the others on the read pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.pull_hold import PullHold
from ingest_api.broker.thread_pools import ReadPool
from store_native import Slice, Store

# A pull this close to the end of its queue reads what was just written: in memory, in microseconds.
_WARM_MESSAGES = 20_000
_INLINE_BYTES = 512 << 10


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull, checked.

    Attributes:
        arrow: The messages as an Arrow IPC stream; otherwise as JSON.
        wait_ms: How long it may be held while nothing matches.
        tags: ``*``, or tags joined by ``||``.
        group: Who pulls, for the metrics; may be empty.
        end_offset: Where to stop, for Arrow.
        columns: Which columns, for Arrow; None means all.
    """

    topic: str
    queue_id: int
    offset: int
    arrow: bool
    max_messages: int
    max_bytes: int
    wait_ms: int
    tags: str
    group: str
    end_offset: int | None
    columns: list[str] | None


class PullService:
    """Reads for consumers.

    Args:
        store: What is read.
        pull_hold: Wakes held pulls.
        reads: Runs Arrow reads and reads far from the end.
        metrics: Counts.
    """

    def __init__(self, store: Store, pull_hold: PullHold, reads: ReadPool, metrics: BrokerMetrics) -> None:
        self._store = store
        self._pull_hold = pull_hold
        self._reads = reads
        self._metrics = metrics

    async def pull(
        self, request: PullRequest, gone: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> tuple[Slice, bytes]:
        """Reads, holding the pull while nothing is there.

        Args:
            request: What to read.
            gone: Makes a coroutine that returns when the consumer went away; run only while held.

        Returns:
            The slice, and its messages as JSON or Arrow.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST, QUEUE_NOT_EXIST, ...
            Unavailable: SERVICE_NOT_AVAILABLE, while queues are built again.
        """
        piece = await self._read(request)
        if request.wait_ms and piece.status in ("NO_NEW_MSG", "NO_MATCHED_MSG"):
            piece = await self._hold(request, piece, gone)
        messages = piece.messages
        return piece, messages

    def count(self, request: PullRequest, piece: Slice, size: int) -> None:
        """Counts what left, ``size`` bytes of it."""
        self._metrics.pulled(request.topic, request.group, piece.count, size)

    async def _read(self, request: PullRequest) -> Slice:
        if request.arrow:
            return await self._reads.run(self._read_arrow, request)
        _, end = self._store.queue_bounds(request.topic, request.queue_id)
        if end - request.offset <= _WARM_MESSAGES and request.max_bytes <= _INLINE_BYTES:
            return self._read_json(request)
        return await self._reads.run(self._read_json, request)

    def _read_json(self, request: PullRequest) -> Slice:
        return self._store.read_json(
            request.topic,
            request.queue_id,
            request.offset,
            max_messages=request.max_messages,
            max_bytes=request.max_bytes,
            tags=request.tags,
        )

    def _read_arrow(self, request: PullRequest) -> Slice:
        return self._store.read_ipc(
            request.topic,
            request.queue_id,
            request.offset,
            end_offset=request.end_offset,
            max_messages=request.max_messages,
            max_bytes=request.max_bytes,
            tags=request.tags,
            columns=request.columns,
        )

    async def _hold(
        self, request: PullRequest, piece: Slice, gone: Callable[[], Coroutine[Any, Any, None]] | None
    ) -> Slice:
        """Waits for messages that match, until the pull's time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_ms / 1000
        queue = (request.topic, request.queue_id)
        watch = loop.create_task(gone()) if gone is not None else loop.create_future()
        self._metrics.held_pulls += 1
        try:
            while loop.time() < deadline and not self._pull_hold.closed:
                if piece.status == "NO_MATCHED_MSG":
                    # What is passed over need not be looked at again by the next pull.
                    request = replace(request, offset=piece.next_offset)
                    piece = await self._read(request)
                    if piece.status == "NO_MATCHED_MSG":
                        await asyncio.sleep(0)
                        continue
                if piece.status != "NO_NEW_MSG":
                    break
                notified = self._pull_hold.wait_for(queue)
                try:
                    piece = await self._read(request)
                    if piece.status == "NO_NEW_MSG":
                        await asyncio.wait(
                            (notified, watch),
                            timeout=deadline - loop.time(),
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                        if watch.done():
                            # Closed, or only its side of the connection: then it reads what there is.
                            break
                        if notified.done():
                            piece = await self._read(request)
                finally:
                    self._pull_hold.forget(queue, notified)
        finally:
            self._metrics.held_pulls -= 1
            watch.cancel()
        return piece
