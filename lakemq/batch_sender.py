"""One batch to one broker: sent, repeated in parts where the broker says so, and given up.

Owns what a broker's answer makes of a batch and of what waits behind it.

Invariants: a batch carries one Idempotency-Key as long as a part of it may be stored under it; a message the
broker refuses fails alone, not its neighbours; who is given up takes those with him only that have waited
longer than one send may take, and of his own broker where there are several.

Threads: each has a sender of its own; what they share is in send_queue.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakemq.client import BatchResult, Client, LakeMQError, OutcomeUnknown
from lakemq.client.broker_transport import LOOK_AGAIN_S
from lakemq.lanes import Lanes
from lakemq.pending_messages import PendingMessage
from lakemq.send_queue import Batch, SendQueue, new_key
from store_native.errors import InvalidRequest, Unavailable

_LEAST_S = 0.001


@dataclass(frozen=True, slots=True)
class SendTimes:
    """How long one send may take.

    Attributes:
        timeout_s: In all, its repeats included.
        repeats: Whether it is repeated until that time.
        clock: Monotonic seconds.
    """

    timeout_s: float
    repeats: bool
    clock: Callable[[], float]


class BatchSender:
    """Sends the batches of one thread.

    Args:
        queue: Where what is not sent goes back to.
        client: Knows the brokers.
        lanes: Knows where messages go.
        times: How long a send may take.
        lane_known: Called, under the queue's lock, when somebody has said whose a message is: others may go
            beside it.
    """

    def __init__(
        self,
        queue: SendQueue,
        client: Client,
        lanes: Lanes,
        times: SendTimes,
        lane_known: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._client = client
        self._lanes = lanes
        self._times = times
        self._lane_known = lane_known

    def send(self, batch: Batch) -> None:
        """Sends a batch; one the broker names as bad is taken out, and the rest sent again."""
        while batch.items:
            try:
                results = self._post(batch).results
                if len(results) != len(batch.items):
                    what = f"{len(batch.items)} messages sent, {len(results)} results"
                    raise OutcomeUnknown.of(what, batch.key)
            except LakeMQError as error:
                if not self._is_mended(batch, error):
                    return
            except Exception as error:  # noqa: BLE001 - goes to the caller through each future
                fail(batch.items, error)
                return
            else:
                for item, result in zip(batch.items, results, strict=True):
                    item.stored(result)
                return

    def _is_mended(self, batch: Batch, error: LakeMQError) -> bool:
        """Makes of a batch what may be sent after an error; False: no more of it is sent here."""
        several = len(batch.items) > 1
        if isinstance(error, InvalidRequest):
            index = error.context.get("index")
            if isinstance(index, int) and index < len(batch.items):
                refused = batch.items.pop(index)
                refused.fail(error)
                self._queue.note_ended([refused])
                batch.key = new_key()  # nothing was stored under the old one
                return True
            if error.context.get("brokers") and several:
                # Nobody had said when the messages were put, or the routes have changed since.
                self._send_apart(batch)
                return False
        if error.code == "REQUEST_TOO_LARGE" and several:
            self._queue.put_half_back(batch)
            return True
        fail(batch.items, error)
        if isinstance(error, Unavailable | OutcomeUnknown):
            self._give_up_waiting(error, self._queue.lane_of_failed(batch.items[0]))
        return False

    def _post(self, batch: Batch) -> BatchResult:
        first, began = batch.items[0], self._times.clock()
        self._ask_for_lane(first)
        left_s = max(_LEAST_S, self._times.timeout_s - (self._times.clock() - began))
        return self._lanes.client_to(first.broker_name).send_ndjson(
            first.topic,
            b"".join(item.line for item in batch.items),
            idempotency_key=batch.key,
            full_results=True,
            retry_until=left_s if self._times.repeats else None,
            in_turn=True,
        )

    def _ask_for_lane(self, first: PendingMessage) -> None:
        """Asks whose a message is, where nobody has said so: what waits behind it may be of other brokers.

        It is not sent before that is known, for only then the others can go beside it.

        Raises:
            LakeMQError: Nobody says; where sends are repeated until a time, until it is over.
        """
        if first.lane is not None or first.sharding_key is None or not self._client.is_routed:
            return
        until = self._times.clock() + self._times.timeout_s
        while True:
            try:
                self._client.lane(first.topic, first.sharding_key)
                break
            except Unavailable:
                if not self._times.repeats or self._times.clock() + LOOK_AGAIN_S >= until:
                    raise
                with self._queue.changed:
                    if self._queue.changed.wait_for(first.future.done, LOOK_AGAIN_S):
                        raise  # a close() gave up
        with self._queue.changed:
            self._queue.changed.notify_all()
            self._lane_known()

    def _send_apart(self, batch: Batch) -> None:
        """Puts what is of several lanes back into them: a broker that is away holds up its own only."""
        apart = self._lanes.apart(batch.items)
        self._queue.lay_out(batch)
        if batch.items:
            for items in apart:
                self.send(Batch(items))

    def _give_up_waiting(self, error: LakeMQError, lane: str | None) -> None:
        """Fails what has waited longer than one send may take, or all of it when nobody sends more.

        Where a key or a queue has one broker, that broker's only: others may answer.
        """
        late = self._queue.take_late(lane, self._times.clock() - self._times.timeout_s)
        detail = f"not sent, as one before it failed: {error}"
        fail(late, Unavailable("SERVICE_NOT_AVAILABLE", detail, sent=False))
        self._queue.note_ended(late)


def fail(items: Iterable[PendingMessage], error: Exception) -> None:
    """Ends the futures of messages with an error."""
    for item in items:
        item.fail(error)
