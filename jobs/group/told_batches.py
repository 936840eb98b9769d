"""Tells a broker what each batch came to, for its /metrics.

Owns which broker is told, and when none is.

Invariants: a batch that is not told costs nothing but its place in the metrics; of several brokers one is
told, so that their sum counts a batch once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from jobs.group.batch_report import BatchReport
from jobs.runtime.group_brokers import GroupBrokers
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from store_native.errors import InvalidRequest, LakeMQError

_log = logging.getLogger(__name__)

SILENT_S = 30.0
"""How long nobody is told behind a broker that did not answer."""
_UNKNOWN = "REQUEST_CODE_NOT_SUPPORTED"


class ToldBatches:
    """Tells of one group's batches.

    Args:
        group: the group.
        brokers: those it reads.
        lease: its lease, if it has one.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        group: str,
        brokers: GroupBrokers,
        lease: GroupLease | GroupLeases | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._brokers = brokers
        self._lease = lease
        self._clock = clock
        self._turn = 0
        self._silent_until = 0.0
        self._unknown: set[str] = set()

    def tell(self, batch: str, report: BatchReport, given_up_as: str) -> None:
        """Tells the broker whose turn it is, of a batch with messages; after an outage it is the next one's.

        Args:
            batch: The batch's name.
            report: What it came to.
            given_up_as: The verdict of messages that were given up: DEAD, or DROPPED in broadcast mode.
        """
        if not report.messages or self._clock() < self._silent_until:
            return
        try:
            self._tell(batch, report, given_up_as)
        except LakeMQError as error:
            _log.info("batch %s of %s is missing in the broker's metrics: %s", batch, self._group, error)
            self._turn += 1
            self._silent_until = self._clock() + SILENT_S

    def _tell(self, batch: str, report: BatchReport, given_up_as: str) -> None:
        known = self._brokers.each()
        names = sorted(known.keys() - self._unknown)
        if not names:
            return
        name = names[self._turn % len(names)]
        messages = {
            "ACK": report.acknowledged,
            "RETRY": report.retried,
            given_up_as: report.given_up,
        }
        epoch = None if self._lease is None else self._lease.epoch_at(name)
        try:
            known[name].count_batch(self._group, batch, messages, report.seconds, lease_epoch=epoch)
        except InvalidRequest as refused:
            if refused.code == _UNKNOWN:
                self._unknown.add(name)  # a broker of an earlier version
            raise
