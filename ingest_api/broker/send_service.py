"""Stores what producers send and says when it is safe enough.

Owns the path of a send from its payload to its SendStatus.

Invariants: a status means that it was stored: SEND_OK as safely as flush mode and role say, any other less
safely. An error other than Closed means that nothing was.

Threads: the event loop. A small payload is parsed and appended on it, because that takes microseconds; a
large one on the bulk pool (parsing releases the GIL), so that a bulk load does not hold up small sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ingest_api.broker.admission import Admission
from ingest_api.broker.flush_wait import FlushWaiter, Outcome, SendStatus
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.ordered_sends import OrderedSends
from ingest_api.broker.send_request import MessageFields, PayloadKind, SendRequest
from ingest_api.broker.settings import LimitSettings
from ingest_api.broker.thread_pools import BulkPool
from store_native import Appended, Store
from store_native.errors import Closed, InvalidRequest
from store_native.names import is_group_topic

Payload = bytes | Callable[[], bytes]
"""Bytes, or what makes them; the latter is called on the bulk pool."""


class SendResult(NamedTuple):
    """A send that is in the log.

    Attributes:
        status: How safe it is.
        appended: Where it is.
    """

    status: SendStatus
    appended: Appended


class SendService:
    """Stores messages.

    Args:
        store: Where they go.
        flush_waiter: Holds answers back.
        admission: Turns away what does not fit.
        bulk: Runs large appends.
        metrics: Counts.
        limits: The bounds.
        ordered: Refuses what an ordered topic's list gives to another broker.
    """

    def __init__(
        self,
        store: Store,
        flush_waiter: FlushWaiter,
        admission: Admission,
        bulk: BulkPool,
        metrics: BrokerMetrics,
        limits: LimitSettings,
        ordered: OrderedSends,
    ) -> None:
        self._ordered = ordered
        self._flush_waiter = flush_waiter
        self._admission = admission
        self._bulk = bulk
        self._metrics = metrics
        self._inline_bytes = limits.inline_bytes
        self._max_message_bytes = limits.max_message_bytes
        self._append_message = store.append_message
        self._append_kind: dict[PayloadKind, Callable[..., Appended]] = {
            PayloadKind.JSON: store.append_json,
            PayloadKind.NDJSON: store.append_ndjson,
            PayloadKind.ARROW: store.append_arrow,
        }

    @property
    def is_open(self) -> bool:
        """Whether :meth:`check` would let a send in."""
        return self._admission.open

    def check(self) -> None:
        """Refuses a send whose payload need not even be read.

        Raises:
            Unavailable: SYSTEM_BUSY, DISK_FULL or SERVICE_NOT_AVAILABLE.
        """
        self._admission.check()

    def check_size(self, topic: str, size: int) -> None:
        """Refuses a raw message by its size.

        What a group sends back was taken once, maybe under a larger limit than today's: that of a request
        and the log's files bound it.

        Raises:
            InvalidRequest: MESSAGE_TOO_LARGE.
        """
        limit = self._max_message_bytes
        if size > limit and not is_group_topic(topic):
            detail = f"the message has {size} bytes, at most {limit} are taken"
            raise InvalidRequest("MESSAGE_TOO_LARGE", detail, limit=limit, size=size)

    async def send(
        self,
        request: SendRequest,
        payload: Payload,
        size: int,
        *,
        wait: bool = True,
        on_stored: Callable[[], None] | None = None,
    ) -> SendResult:
        """Stores a payload and returns when it is as safe as the flush mode says.

        Args:
            request: What belongs to the payload.
            payload: The messages; what has to be made first is made on the bulk pool.
            size: Bytes as they arrived, for the metrics.
            wait: False returns SEND_OK as soon as it is in the log.
            on_stored: Called once the payload is not needed any more.

        Raises:
            InvalidRequest: The payload or the request is illegal.
            Unavailable: A limit of admission is reached.
            Closed: STORE_POISONED; whether it was stored is unknown.
        """
        # Only now: a producer that is slow to send its payload takes no place of another.
        self._admission.enter()
        try:
            if isinstance(payload, bytes) and size <= self._inline_bytes:
                appended = self.append(request, payload)
            else:
                appended = await self._bulk.run(self._append_large, request, payload)
            # What waits for the flush holds nothing but its place.
            del payload
            if on_stored is not None:
                on_stored()
            durable = True
            if wait and appended.waits:
                waiting = self._flush_waiter.wait_send(appended.end_offset)
                durable = waiting is None or await waiting
        finally:
            self._admission.leave()
        self.count(request.topic, appended, size)
        return SendResult(self._status(appended, durable), appended)

    def append(self, request: SendRequest, payload: bytes) -> Appended:
        """Stores a payload on this thread, the event loop's, without waiting for its flush.

        It takes no place of admission: who calls it has looked at :attr:`is_open`, and :meth:`on_durable`
        takes one while the send waits.

        Raises:
            InvalidRequest, Unavailable, Closed: As :meth:`send`.
        """
        self._flush_waiter.flush_soon()
        return self._append(request, payload, flush_later=True)

    def append_plain(
        self, kind: PayloadKind, topic: str, payload: bytes, client: tuple[str, int] | None
    ) -> Appended:
        """Stores a payload that nothing belongs to but its topic: :meth:`append` in the fewest steps."""
        if b"sharding_key" in payload:
            self._ordered.check(SendRequest(topic, kind, client), payload)
        self._flush_waiter.flush_soon()
        return self._append_kind[kind](topic, payload, born_host=client, flush_later=True)

    def on_durable(self, appended: Appended, notify: Callable[[SendStatus | Closed], None]) -> bool:
        """Has ``notify`` called when an append is as safe as asked; until then it is in flight.

        Returns:
            False when it is so already; ``notify`` is not called then.

        Raises:
            Closed: STORE_POISONED.
        """
        if not appended.waits or self._flush_waiter.is_durable(appended.end_offset):
            return False
        admission = self._admission

        def flushed(outcome: Outcome) -> None:
            admission.leave()
            notify(outcome if isinstance(outcome, Closed) else self._status(appended, outcome))

        self._flush_waiter.on_durable(appended.end_offset, flushed)
        admission.enter()
        return True

    def count(self, topic: str, appended: Appended, size: int) -> None:
        """Counts what was stored."""
        if appended.duplicate:
            self._metrics.duplicates += 1
        else:
            self._metrics.sent(topic, appended.count, size)

    def _status(self, appended: Appended, durable: bool) -> SendStatus:
        """Says what a send came to; counts it when it is less safe than asked."""
        if durable:
            return "SEND_OK"
        status = self._flush_waiter.shortfall(appended.end_offset)
        self._metrics.answered(status)
        return status

    def _append_large(self, request: SendRequest, payload: Payload) -> Appended:
        """Runs on a worker thread."""
        return self._append(request, payload if isinstance(payload, bytes) else payload(), flush_later=False)

    def _append(self, request: SendRequest, payload: bytes, *, flush_later: bool) -> Appended:
        self._ordered.check(request, payload)
        if request.kind is PayloadKind.RAW:
            return self._append_raw(request, payload, flush_later=flush_later)
        return self._append_kind[request.kind](
            request.topic,
            payload,
            born_host=request.client,
            idempotency_key=request.idempotency_key,
            full_results=request.full_results,
            flush_later=flush_later,
        )

    def _append_raw(self, request: SendRequest, payload: bytes, *, flush_later: bool) -> Appended:
        self.check_size(request.topic, len(payload))
        fields = request.fields or MessageFields()
        return self._append_message(
            request.topic,
            payload,
            tags=fields.tags,
            keys=fields.keys,
            properties=fields.properties,
            sharding_key=fields.sharding_key,
            queue_id=fields.queue_id,
            flag=fields.flag,
            delay_level=fields.delay_level,
            message_id=fields.message_id,
            born_host=request.client,
            idempotency_key=request.idempotency_key,
            flush_later=flush_later,
        )
