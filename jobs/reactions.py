"""The reactions job: what failed goes back to the broker, what is given up to the dead letters.

Owns the stream from `deliveries` (verdicts RETRY and DEAD); retry.py and dead_letter.py say what is done with
a batch's rows.

Invariants: one stream for both, since each commit of the ledger makes a batch in every stream over it, and
most hold neither. Retries are sent first: a handler waits for them.
"""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DEAD, RETRY
from jobs import dead_letter
from jobs.group.fence import GroupFence
from jobs.group.ledger_consumer import LedgerConsumer
from jobs.retry import send_retries

NAME = "reactions"


class ReactionJob(LedgerConsumer):
    """One group's stream of what failed."""

    name = NAME
    comes_back = True
    kind = f"verdict IN ('{RETRY}', '{DEAD}')"
    oldest_unfinished = (
        "SELECT min(since) AS oldest FROM (SELECT consumer_group, failed_at AS since FROM pending_retries "
        "UNION ALL SELECT consumer_group, given_up_at FROM pending_dead_letters)"
    )

    @cached_property
    def _fence(self) -> GroupFence:
        return self._fence_of(DEAD_LETTERS)

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Sends what failed, then what was given up, and writes the rows of that."""
        settings = self._settings
        failed, given_up = (rows.where(F.col("verdict") == verdict) for verdict in (RETRY, DEAD))
        if not failed.isEmpty():
            send_retries(failed, settings.group, self._endpoint)
        if not given_up.isEmpty():
            dead_letter.land(given_up, batch_id, settings, self._endpoint, self._fence, self._spark)
