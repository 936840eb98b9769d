"""Retries: what failed and has attempts left goes back to the broker, delayed, once.

Owns the way from rows of `deliveries` (verdict RETRY) to `%RETRY%<group>`, which the group job reads.

Invariants: a repeated batch is sent under the same keys, which the broker stores once.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from jobs.redelivery.retried_messages import retried_messages
from jobs.redelivery.row_messages import send_once


def send_retries(failed: DataFrame, group: str, endpoint: str) -> None:
    """Sends the messages of failed attempts, delayed as their rows say.

    Args:
        failed: RETRY rows of `deliveries`, all of the group.
        group: the group.
        endpoint: the broker's, or the name servers'.

    Raises:
        Py4JJavaError: the broker refuses them or does not answer; the batch runs again.
    """
    send_once(retried_messages(failed, group), endpoint, purpose="retry")
