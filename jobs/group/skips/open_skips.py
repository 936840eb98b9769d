"""The messages of a group that an operator gave up and that have no last verdict yet.

Owns the questions to the ledger, and on the driver their answer from batch to batch.

Invariants: a skip is open until an attempt behind it is ACK, DEAD or DROPPED, and never again; only what is
open is held. The tables are read when the one with the skips has changed, or a batch has skipped a message.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from delta_tables.deliveries import ACK, DEAD, DELIVERIES, DROPPED
from delta_tables.known_keys import MOST_SPANS, Position, rows_within
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.spans import Span
from delta_tables.ledger_query import select
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from jobs.group.skips.skipped_rows import Skip, Skips

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_POSITION = ("topic", "broker_name", "queue_id", "queue_offset")
_OF_GROUP = """\
SELECT topic, broker_name, queue_id, queue_offset, coalesce(attempts, 0) AS attempts, operator, reason,
  skipped_at
FROM skipped_messages WHERE consumer_group = '{group}' ORDER BY skipped_at"""
_LAST = frozenset([ACK, DEAD, DROPPED])


class OpenSkip(NamedTuple):
    """A row of `skipped_messages` that holds.

    Attributes:
        position: of the message, its original one.
        attempts: made before it was given up.
        operator: who did it.
        reason: why.
        skipped_at: when.
    """

    position: Position
    attempts: int
    operator: str
    reason: str
    skipped_at: datetime


def open_skips(ledger: LedgerLocation, group: str, spark: SparkSession | None = None) -> list[OpenSkip]:
    """Reads a group's skips that are open, the oldest first.

    Args:
        ledger: the ledger, which has the table.
        group: the group.
        spark: the session, for a ledger in a catalog.
    """
    rows = select(ledger, _OF_GROUP.format(group=group), spark)
    return _still_open(ledger, group, [OpenSkip(row[:4], *row[4:]) for row in rows], spark)


class SkipWatch:
    """What a group's batches skip.

    Args:
        ledger: the ledger.
        group: the group.
        spark: the session, for a ledger in a catalog.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        ledger: LedgerLocation,
        group: str,
        spark: SparkSession,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._group = group
        self._spark = spark
        self._clock = clock
        self._pause_s = ledger.versions_hold_s
        self._asked_at: float | None = None
        self._version = -1
        self._open: list[OpenSkip] = []
        self._is_settled = True

    def for_batch(self) -> Skips:
        """What the next batch skips."""
        version = self._version_now()
        if version != self._version:  # asked first: what comes meanwhile is read twice rather than not
            before = len(self._open)
            self._open = open_skips(self._ledger, self._group, self._spark)
            self._version = version
            if len(self._open) > before:
                _log.warning("an operator has given up messages of %s: %s wait", self._group, len(self._open))
        elif not self._is_settled:
            self._open = _still_open(self._ledger, self._group, self._open, self._spark)
        self._is_settled = not self._open  # until the batch's commit is known
        return Skips(frozenset(_skip(each) for each in self._open))

    def _version_now(self) -> int:
        now = self._clock()
        if self._asked_at is None:
            self._ledger.create(SKIPPED_MESSAGES, spark=self._spark)
        elif now < self._asked_at + self._pause_s:
            return self._version
        self._asked_at = now
        return self._ledger.version(self._spark, SKIPPED_MESSAGES)

    def committed(self, skipped: int) -> None:
        """Takes note of how many messages a batch has skipped: a replay of one is not skipped again."""
        self._is_settled = skipped == 0


def _skip(one: OpenSkip) -> Skip:
    return Skip(*one.position, f"skipped by {one.operator}: {one.reason}")


def _still_open(
    ledger: LedgerLocation, group: str, skips: Sequence[OpenSkip], spark: SparkSession | None
) -> list[OpenSkip]:
    last: dict[Position, int] = {}
    for some in _pieces(sorted({skip.position for skip in skips})):
        # One position each: what lies between two of them may be most of the history.
        asked = [Span(topic, queue_id, offset, offset) for topic, _, queue_id, offset in some]
        columns = (*_POSITION, "attempt", "verdict")
        for *position, attempt, verdict in rows_within(spark, ledger, DELIVERIES, group, asked, columns):
            key: Position = (position[0], position[1], position[2], position[3])
            if verdict in _LAST:
                last[key] = max(attempt, last.get(key, 0))
    return [skip for skip in skips if last.get(skip.position, 0) <= skip.attempts]


def _pieces(positions: Sequence[Position]) -> Iterator[Sequence[Position]]:
    for begin in range(0, len(positions), MOST_SPANS):
        yield positions[begin : begin + MOST_SPANS]
