"""Knowing that a group has nothing left to do, for `--until-idle`.

Owns the check, not the waiting. Idle means: every queue of the subscription is handled up to its end, no
failed attempt waits for its retry, every message given up has reached the dead letters, and no delayed
message waits at the broker.

Invariants: each is read from the broker or the ledger; nothing is guessed from quiet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from jobs.runtime.group_brokers import GroupBrokers
from lakemq.client import Client
from structured_streaming.offsets import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELAYED = "lakemq_timing_messages"

_UNFINISHED = (
    "SELECT (SELECT count(*) FROM pending_retries WHERE consumer_group = '{group}')"
    " + (SELECT count(*) FROM pending_dead_letters WHERE consumer_group = '{group}') AS unfinished"
)


class IdleWatch:
    """Says whether anything is new, pending or due."""

    def __init__(
        self,
        spark: SparkSession,
        client: Client,
        ledger: LedgerLocation,
        group: str,
        subscription: tuple[str, ...],
        reached: Mapping[MessageQueue, int],
    ) -> None:
        """Looks at one group.

        Args:
            spark: the session, for a ledger in a catalog.
            client: the broker.
            ledger: the group's ledger.
            group: the group.
            subscription: the topics its query reads.
            reached: the offset the group job has reached in each queue, as it moves on.
        """
        self._brokers = GroupBrokers(client)
        self._spark = spark
        self._ledger = ledger
        self._group = group
        self._subscription = subscription
        self._reached = reached

    def is_idle(self) -> bool:
        """Checks once; what is cheap first."""
        return self._all_read() and self._unfinished() == 0 and not self._delayed()

    def _all_read(self) -> bool:
        return all(
            bounds.max_offset <= self._reached.get(queue, bounds.min_offset)
            for topic in self._subscription
            for queue, bounds in self._brokers.queues(topic).items()
        )

    def _unfinished(self) -> int:
        ((unfinished,),) = select(self._ledger, _UNFINISHED.format(group=self._group), self._spark)
        return int(unfinished)

    def _delayed(self) -> bool:
        """Whether the broker holds any delayed message, whatever its topic: their topics are not shown."""
        return any(waiting_messages(broker.metrics()) > 0 for broker in self._brokers.each().values())


def waiting_messages(metrics: str) -> int:
    """Adds up the delayed messages of all levels in a page of metrics."""
    lines = (line for line in metrics.splitlines() if line.startswith(_DELAYED))
    return sum(round(float(line.rpartition(" ")[2])) for line in lines)
