"""What a producer was given and has not ended: what waits to be sent, and what is on its way.

Owns the lock of all who send, when a message is due, and which messages are open; the order of what waits is
in pending_messages.py, the threads that send it in senders.py.

Invariants: what waits stays within its bound, but for one message that is larger; a message is open from
``put`` until its future has ended; nothing here holds the producer.

Threads: any may call. "Under the lock" is said of what only a thread calls that holds ``changed``.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemq.client.forks import tell_in_child
from lakemq.lanes import Lanes
from lakemq.pending_messages import PendingMessage, PendingMessages
from store_native.errors import Closed, Unavailable


def new_key() -> str:
    """Returns an Idempotency-Key that nobody else has."""
    return uuid.uuid4().hex


def closed() -> Closed:
    """Returns what a producer raises that takes no more messages."""
    return Closed("PRODUCER_CLOSED", "the producer is closed")


@dataclass(slots=True, eq=False)
class Batch:
    """What goes out in one request, under one key however often it is repeated."""

    items: list[PendingMessage]
    key: str = field(default_factory=new_key)


class SendQueue:
    """The messages of one producer that have not ended.

    Args:
        lanes: Knows where messages go.
        linger_s, batch_bytes, max_pending_bytes: As :class:`lakemq.Producer`'s.
        clock: Monotonic seconds.
        threads: What there is of locks.

    Attributes:
        changed: The lock; who waits for a change waits for it.
        is_closed: Whether it takes no more messages, and sends at once what waits.
        is_dropped: Whether nobody has the producer any more; what waits still lingers.
    """

    def __init__(
        self,
        lanes: Lanes,
        *,
        linger_s: float,
        batch_bytes: int,
        max_pending_bytes: int,
        clock: Callable[[], float],
        threads: Any,
    ) -> None:
        self._lanes = lanes
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._max_pending_bytes = max_pending_bytes
        self._clock = clock
        self._threads = threads
        self.is_closed = False
        self.is_dropped = False
        self._begin()
        tell_in_child(self._begin)

    def _begin(self) -> None:
        """Begins with nothing put; so does a forked process: its parent sends what it put."""
        self.changed = self._threads.Condition()
        self._pending = PendingMessages(self._batch_bytes)
        self._put = 0  # how many were put: the number of the next
        self._open: OrderedDict[int, PendingMessage] = OrderedDict()  # those that have not ended, by number
        self._wanted = 0  # what has a lower number does not wait for the linger
        self._under_way: list[Batch] = []

    # what is put, and who waits for it

    def wait_for_room(self, size: int, *, may_wait: bool) -> None:
        """Waits, under the lock, until so many bytes fit.

        Raises:
            Unavailable: SYSTEM_BUSY, they do not and the caller may not wait.
            Closed: No more messages are taken.
        """
        if not (self.is_closed or self._fits(size) or may_wait):
            detail = f"{self._pending.size} bytes wait to be sent, and a callback waits for no room"
            raise Unavailable("SYSTEM_BUSY", detail, sent=False)
        self.changed.wait_for(lambda: self.is_closed or self._fits(size))
        if self.is_closed:
            raise closed()

    def _fits(self, size: int) -> bool:
        return not self._pending or self._pending.size + size <= self._max_pending_bytes

    def put(self, message: PendingMessage) -> None:
        """Adds a message, under the lock, behind all others, and gives it its number."""
        message.number = self._put
        self._pending.put(message)
        self._open[self._put] = message
        self._put += 1
        self.changed.notify_all()

    def wait_until_sent(self, timeout: float | None) -> None:
        """Has all that was put by now sent at once; waits, under the lock, until it has ended.

        Raises:
            TimeoutError: So many seconds were over first.
        """
        put = self._put
        self._wanted = put
        self.changed.notify_all()
        if not self.changed.wait_for(lambda: next(iter(self._open), put) >= put, timeout):
            left = sum(number < put for number in self._open)
            raise TimeoutError(f"{left} messages are still on their way after {timeout} s")

    def open_messages(self) -> list[PendingMessage]:
        """Returns those that have not ended."""
        with self.changed:
            return list(self._open.values())

    # its end

    def close(self) -> None:
        """Takes no more messages, under the lock; what waits is due."""
        self.is_closed = True
        self.changed.notify_all()

    def drop(self) -> None:
        """Notes, under the lock, that nobody can put any more; what waits goes when it is due."""
        self.is_dropped = True
        self.changed.notify_all()

    def give_up(self) -> tuple[list[Batch], list[PendingMessage]]:
        """Takes all that waits; returns what is on its way, and what was taken."""
        with self.changed:
            return list(self._under_way), self._pending.take_while(lambda message: True)

    # what is sent

    def next_batch(self) -> Batch | None:
        """Waits, under the lock, until a batch is due and takes it; None: nothing is left, nor will be."""
        while (first := self._due()) is None:
            if not self._pending and (self.is_closed or self.is_dropped):
                return None
            self.changed.wait(self._until_due())
        batch = Batch(self._pending.take_batch(first))
        self._under_way.append(batch)
        self.changed.notify_all()
        return batch

    def _due(self) -> PendingMessage | None:
        """The first message of what is to go now: it has waited enough, or its lane is full."""
        self._put_apart()
        oldest = self._pending.oldest()
        if oldest is None:
            return None
        at_once = self.is_closed or oldest.number < self._wanted
        if at_once or self._clock() - oldest.since >= self._linger_s:
            return oldest
        return self._pending.first_of_full_lane()

    def _until_due(self) -> float | None:
        oldest = self._pending.oldest()
        return None if oldest is None else max(0.0, oldest.since + self._linger_s - self._clock())

    @property
    def count_under_way(self) -> int:
        """How many batches are on their way, under the lock."""
        return len(self._under_way)

    def has_another(self) -> bool:
        """Whether something may go, under the lock, beside what is on its way."""
        self._put_apart()
        return bool(self._under_way) and self._pending.oldest() is not None

    def _put_apart(self) -> None:
        """Puts what was put without a lane into its own, where somebody has said since which that is."""
        first = self._pending.first_without_lane()
        if first is not None and self._lanes.known(first) is not None:
            self._pending.put_apart(self._lanes.known)

    def ended(self, batch: Batch, lane: str | None, items: Sequence[PendingMessage]) -> None:
        """Notes that a batch is not on its way any more.

        Args:
            batch: The batch; it may hold less than was taken.
            lane: In which it was taken.
            items: What was taken; those that have no end were put back.
        """
        with self.changed:
            self._under_way.remove(batch)
            self._pending.ended(lane, items)
            self.note_ended([item for item in items if item.future.done()])

    def note_ended(self, items: Sequence[PendingMessage]) -> None:
        """Notes that the futures of messages have ended."""
        with self.changed:
            for item in items:
                self._open.pop(item.number, None)
            self.changed.notify_all()

    # what comes back of it

    def put_half_back(self, batch: Batch) -> None:
        """Makes less of a batch that the broker finds too large, and of those to come."""
        middle = len(batch.items) // 2
        with self.changed:
            self._pending.take_less(batch.items)
            self._pending.put_back(batch.items[middle:])
            batch.items = batch.items[:middle]
            batch.key = new_key()  # nothing was stored under the old one

    def lay_out(self, batch: Batch) -> None:
        """Puts what is of several lanes back into them, and what waits behind it into those of now.

        What waits was put by the same that was known when the batch was. A batch of one lane is left.
        """
        is_of_one = len({message.lane for message in batch.items}) == 1
        with self.changed:
            self._pending.lay_out(self._lanes.known)
            if not is_of_one:
                self._pending.put_back(batch.items)
                batch.items = []

    def lane_of_failed(self, first: PendingMessage) -> str | None:
        """Returns which lane a batch was of that its broker did not take; None: it stands for all."""
        if first.lane is not None or first.sharding_key is None:
            return first.lane
        # Nobody had said when it was put. Who waits behind it may be of brokers that answer.
        with self.changed:
            self._pending.put_apart(self._lanes.known)
        return self._lanes.known(first)

    def take_late(self, lane: str | None, since: float) -> list[PendingMessage]:
        """Takes what was put by then and waits, or all of it where the producer is closed.

        Args:
            lane: Takes of this lane only; None: of all.
            since: Seconds of the clock.
        """
        with self.changed:
            return self._pending.take_while(
                lambda message: (
                    (lane is None or message.lane == lane) and (self.is_closed or message.since <= since)
                )
            )
