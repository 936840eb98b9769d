"""Offsets that a promoted slave gave a second time, and the names that their messages have in a ledger.

A ledger's key has no epoch. Where a group goes on behind a truncated log, the ledger keeps the rows of the
messages that are gone, and those that have their offsets now are, to it, of a broker of another name:
`broker-a@65`, broker-a since its epoch 65.

Owns these names. Pure.

Invariants: of a range that was accepted, one offset and one name are one message, whatever is promoted
later; outside of such ranges a name is the broker's. No broker has a name with an at sign.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from structured_streaming.offsets import MessageQueue

NO_END = 2**63 - 1
_SINCE = "@"


class GivenAgain(NamedTuple):
    """Offsets [start, end) of a queue that a group had read as other messages before an epoch of its log."""

    queue: MessageQueue
    start: int
    end: int
    epoch: int


class Part(NamedTuple):
    """Offsets [start, end) of a queue, which have one name in the ledger."""

    queue: MessageQueue
    start: int
    end: int


@dataclass(frozen=True)
class LedgerNames:
    """What the messages of a group's queues are called in its ledger."""

    ranges: tuple[GivenAgain, ...] = ()

    def parts(self, queue: MessageQueue, start: int, end: int) -> list[Part]:
        """Cuts [start, end) of a broker's queue, in order; nothing where it is empty."""
        ranges = self._by_queue.get(queue)
        if ranges is None:
            return [Part(queue, start, end)] if start < end else []
        borders = {at for held in ranges for at in (held.start, held.end) if start < at < end}
        cuts = [start, *sorted(borders), end]
        found: list[Part] = []
        for begin, upto in pairwise(cuts):
            named = self._named(queue, begin)
            if found and found[-1].queue == named:
                found[-1] = found[-1]._replace(end=upto)
            elif begin < upto:
                found.append(Part(named, begin, upto))
        return found

    def of(self, queue: MessageQueue, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns messages of one queue of a broker as the ledger calls them.

        Args:
            queue: the queue.
            batch: what was read of it; without the column broker_name it stays as it is.
        """
        if queue not in self._by_queue or batch.num_rows == 0 or "broker_name" not in batch.schema.names:
            return batch
        offsets = batch.column("queue_offset")
        bounds = pc.min_max(offsets).as_py()
        parts = self.parts(queue, bounds["min"], bounds["max"] + 1)
        if all(part.queue == queue for part in parts):
            return batch
        ends = [part.end for part in parts]
        names = [parts[bisect_right(ends, offset)].queue.broker_name for offset in offsets.to_pylist()]
        at = batch.schema.get_field_index("broker_name")
        field = batch.schema.field(at)
        return batch.set_column(at, field, pa.array(names, field.type))

    def reached(self, handled: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Returns how far a group has come in the brokers' queues.

        Args:
            handled: by the ledger's names, the offset behind the last message.
        """
        found = {queue: at for queue, at in handled.items() if not is_renamed(queue)}
        for queue, ranges in self._by_queue.items():
            # What was handled before the newest range was given lies before its end.
            newest = max(ranges, key=lambda held: (held.epoch, -held.start))
            at = newest.start
            for part in self.parts(queue, newest.start, NO_END):
                done = handled.get(part.queue)
                if done is not None and done > part.start:
                    at = max(at, min(done, part.end))
            found[queue] = at
        return found

    def epochs(self) -> dict[MessageQueue, int]:
        """Returns, of queues with such ranges, in which epoch at least the group came to where it is."""
        return {queue: max(held.epoch for held in ranges) for queue, ranges in self._by_queue.items()}

    def as_of(self, epochs: Mapping[str, int]) -> LedgerNames:
        """Returns the names in what was planned in some epochs, by broker: later ones gave nothing of it."""
        held = (part for part in self.ranges if part.epoch <= epochs.get(part.queue.broker_name, part.epoch))
        return LedgerNames(tuple(held))

    def before(self, epoch: int) -> LedgerNames:
        """Returns the names as they were before an epoch gave offsets again."""
        return LedgerNames(tuple(held for held in self.ranges if held.epoch < epoch))

    def _named(self, queue: MessageQueue, offset: int) -> MessageQueue:
        epoch = max(
            (held.epoch for held in self._by_queue[queue] if held.start <= offset < held.end), default=None
        )
        return queue if epoch is None else queue._replace(broker_name=name_since(queue.broker_name, epoch))

    @cached_property
    def _by_queue(self) -> Mapping[MessageQueue, Sequence[GivenAgain]]:
        found: dict[MessageQueue, list[GivenAgain]] = {}
        for held in self.ranges:
            found.setdefault(held.queue, []).append(held)
        return found


NO_OTHER_NAMES = LedgerNames()


def name_since(broker_name: str, epoch: int) -> str:
    """Returns the name of a broker's messages whose offsets an epoch gave again."""
    return f"{broker_name}{_SINCE}{epoch}"


def broker_of(name: str) -> str:
    """Returns the name by which a broker is found, of the one that a ledger has."""
    return name.partition(_SINCE)[0]


def is_renamed(queue: MessageQueue) -> bool:
    """Says whether a queue's name is one that only a ledger has."""
    return _SINCE in queue.broker_name


def at_brokers(positions: Iterable[tuple[MessageQueue, int]]) -> dict[MessageQueue, int]:
    """Returns positions by the brokers' queues, the first one of each."""
    found: dict[MessageQueue, int] = {}
    for queue, at in positions:
        broker = queue._replace(broker_name=broker_of(queue.broker_name))
        found[broker] = min(at, found.get(broker, at))
    return found
