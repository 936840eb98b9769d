"""Knowing that a group has nothing left to do, for `--until-idle`.

Owns the check, not the waiting. Idle means: every queue of the subscription is handled up to its end, no
failed attempt waits for its retry, no message is parked, every message given up has reached the dead letters,
what verdicts send and write was sent and written, and no delayed message waits at the broker. Of several
brokers one that does not answer for long is left out, and said; so is what verdicts send or write where a
broker or a table does not take it for long.

Invariants: each is read from the broker or the ledger; nothing is guessed from quiet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.written_rows import WRITTEN_ROWS
from jobs.runtime.group_brokers import GroupBrokers
from jobs.runtime.hold_up import HoldUp
from lakemq.client import Client, QueueBounds
from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError
from structured_streaming.offsets import MessageQueue
from structured_streaming.readers.http import held_in
from structured_streaming.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

LEFT_OUT_S = 30.0
"""How long one of several brokers is waited for: longer than it takes to restart."""
DELAYED_SAID_S = 10.0
"""How long delayed messages are waited for before that is said."""

_DELAYED = "lakemq_timing_messages"

_UNFINISHED = (
    "SELECT (SELECT count(*) FROM pending_retries WHERE consumer_group = '{group}')"
    " + (SELECT count(*) FROM parked_messages WHERE consumer_group = '{group}')"
    " + (SELECT count(*) FROM pending_dead_letters WHERE consumer_group = '{group}') AS unfinished,"
    " (SELECT count(*) FROM pending_sends WHERE consumer_group = '{group}') AS unsent"
)
_ANSWERED_BY = (DELIVERIES, DEAD_LETTERS, SENT_MESSAGES, WRITTEN_ROWS)
"""While these tables are the same, so is the answer: what is discarded ends in a commit to one of these."""


class IdleWatch:
    """Says whether anything is new, pending or due."""

    def __init__(
        self,
        spark: SparkSession,
        client: Client,
        ledger: LedgerLocation,
        group: str,
        subscription: Subscription,
        reached: Mapping[MessageQueue, int],
        epochs: Mapping[str, int],
        *,
        hold_ups: Sequence[HoldUp] = (),
        while_waiting: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Looks at one group.

        Args:
            spark: the session, for a ledger in a catalog.
            client: the broker.
            ledger: the group's ledger.
            group: the group.
            subscription: the topics its query reads.
            reached: the offset the group job has reached in each queue, as it moves on.
            epochs: in which epoch of its broker's log, by broker; of one that is missing it is the log's own.
            while_waiting: called where nothing is left to read, and something to be done.
            hold_ups: what holds up the messages that its verdicts send, and the rows that they write.
            clock: monotonic seconds.
        """
        self._clock = clock
        self._hold_ups = hold_ups
        self._while_waiting = while_waiting
        self._answer: tuple[tuple[int, ...], int, int] = ((), 0, 0)
        self._away_since: dict[str, float] = {}
        self._said: set[str] = set()
        self._delayed_since: float | None = None
        self._delayed_said = False
        self._brokers = GroupBrokers(client)
        self._spark = spark
        self._ledger = ledger
        self._group = group
        self._subscription = subscription
        self._reached = reached
        self._epochs = epochs

    def is_idle(self) -> bool:
        """Checks once; what is cheap first.

        Raises:
            Unavailable: No broker answers.
        """
        delayed = self._delayed_at_brokers()
        if delayed != 0:
            self._note_delayed(delayed)
            return False
        self._delayed_since = None
        unfinished, unsent = self._unfinished()
        if unfinished:
            self._while_waiting()
        return unfinished == 0 and (unsent == 0 or self.left_unsent is not None)

    @property
    def left_unsent(self) -> str | None:
        """Why what verdicts send or write waits longer than what passes by itself; None where it does not."""
        return next((hold_up.why for hold_up in self._hold_ups if hold_up.is_long), None)

    @property
    def left_out(self) -> list[str]:
        """Who did not answer for long: what is there is not known."""
        return sorted(name for name in self._away_since if self._is_left_out(name))

    def _delayed_at_brokers(self) -> int | None:
        """Counts the delayed messages; None while a queue is not read or a broker is waited for."""
        brokers = self._brokers.each()
        away: dict[str, LakeMQError | None] = dict.fromkeys(self._brokers.never_answered())
        delayed, read = 0, True
        for name, broker in brokers.items():
            try:
                # Each is asked, so that it is known who answers.
                if self._is_read(name):
                    delayed += waiting_messages(broker.metrics())
                else:
                    read = False
            except LakeMQError as error:
                if not self._brokers.several or not may_pass(error):
                    raise
                away[name] = error
        failed = [error for error in away.values() if error is not None]
        if len(failed) == len(brokers):
            raise failed[0]
        self._note(away)
        return delayed if read and all(self._is_left_out(name) for name in away) else None

    def _note_delayed(self, delayed: int | None) -> None:
        """Says once that nothing but delayed messages is waited for, when that has lasted."""
        now = self._clock()
        if delayed is None:
            self._delayed_since = None
        elif self._delayed_since is None:
            self._delayed_since = now
        elif not self._delayed_said and now - self._delayed_since >= DELAYED_SAID_S:
            self._delayed_since = now  # the next look at the ledger is as far off
            self._delayed_said = self._unfinished() == (0, 0)  # else they may be its own retries
            if self._delayed_said:
                _log.warning(
                    "nothing is left to do but to wait for %s delayed message%s at the broker, of any topic",
                    *(f"{delayed:,}", "" if delayed == 1 else "s"),
                )

    def _is_read(self, name: str) -> bool:
        return all(
            self._is_at_end(queue, bounds)
            for queue, bounds in self._brokers.held_at(name, self._subscription).items()
        )

    def _is_at_end(self, queue: MessageQueue, bounds: QueueBounds) -> bool:
        at, epoch = self._reached.get(queue, bounds.min_offset), self._epochs.get(queue.broker_name)
        # What a later epoch gave again before that the query has not seen.
        is_common = epoch is None or held_in(bounds).past(at, epoch) is None
        return is_common and bounds.max_offset <= at

    def _note(self, away: Iterable[str]) -> None:
        now = self._clock()
        self._away_since = {name: self._away_since.get(name, now) for name in away}
        self._said &= self._away_since.keys()
        for name in self.left_out:
            if name not in self._said:
                self._said.add(name)
                _log.warning("%s does not answer: whether the group is idle is said of the others", name)

    def _is_left_out(self, name: str) -> bool:
        return self._clock() - self._away_since[name] >= LEFT_OUT_S

    def _unfinished(self) -> tuple[int, int]:
        """Counts what is to be done, and what is to be sent; the tables are read when they have changed."""
        versions = tuple(self._ledger.version(self._spark, table) for table in _ANSWERED_BY)
        if versions != self._answer[0]:
            text = _UNFINISHED.format(group=self._group)
            ((unfinished, unsent),) = select(self._ledger, text, self._spark)
            self._answer = (versions, int(unfinished), int(unsent))
        return self._answer[1:]


def waiting_messages(metrics: str) -> int:
    """Adds up the delayed messages of all levels in a page of metrics, which does not show their topics."""
    lines = (line for line in metrics.splitlines() if line.startswith(_DELAYED))
    return sum(round(float(line.rpartition(" ")[2])) for line in lines)
