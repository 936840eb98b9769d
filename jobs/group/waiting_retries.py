"""What a run leaves for a later one: failed attempts whose next attempt has not been made.

Owns the question to the ledger, and its answer for whoever watches the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from jobs.group.orderly.ledger_lanes import parked_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class WaitingRetries:
    """Retries that a group has not handled.

    Attributes:
        messages: how many messages wait for one.
        first_due_at: when the first of them is due; None when none waits.
        parked: messages that wait for an earlier one (orderly mode).
    """

    messages: int
    first_due_at: datetime | None
    parked: int = 0


def waiting_retries(ledger: LedgerLocation, group: str, spark: SparkSession) -> WaitingRetries:
    """Counts what waits in the ledger as it is now."""
    text = "SELECT count(*) AS messages, min(next_attempt_at) AS first_due_at FROM pending_retries"
    ((messages, first_due_at),) = select(ledger, f"{text} WHERE consumer_group = '{group}'", spark)
    return WaitingRetries(int(messages), first_due_at, parked_messages(ledger, group, spark))
