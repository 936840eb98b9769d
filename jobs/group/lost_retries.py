"""Retries that should have come back and did not: the broker lost them, or they expired.

Owns which they are, when that is looked for, and that they are sent again.

Invariants: an attempt that comes back twice is made once, so that sending one again that is only late does no
harm; what waits unread on the retry topic is not sent again; what cannot be sent ends no group. Without it an
attempt that an unclean promotion or the retention of the retry topic took would never be made, and its lane
would wait for ever.

Threads: the group job's start, then Spark's callback thread and the one that asks whether the group is idle;
one of them looks at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY, RETRY
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from jobs.redelivery.retried_messages import retried_messages
from jobs.runtime.group_brokers import GroupBrokers
from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError
from store_native.names import retry_topic
from structured_streaming.offsets import MessageQueue
from structured_streaming.sink.columns import DUE_AT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

LATE = timedelta(minutes=10)
"""So long behind the time that it was due a retry counts as lost: the clocks of two machines differ less."""
LOOK_AGAIN_S = 600.0
"""How long after a look at the ledger there is another one."""

Attempt = tuple[str, str, int, int, int]
"""Original position of a message, and the failed attempt at it."""

_TRY_FOR_MS = 2_000
"""A broker that takes nothing now is asked again by a later look: the group waits for this one."""
_TYPES = "topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, attempt INT"


class LostRetries:
    """The retries of one group that did not come back.

    Args:
        ledger: the group's ledger.
        group: the group.
        brokers: those it reads.
        reached: the offset that the group job has reached in each queue, as it moves on.
        send: sends some again.
        spark: the session, for a ledger in a catalog.
        clock: monotonic seconds.
        now: the time.
    """

    def __init__(
        self,
        ledger: LedgerLocation,
        group: str,
        brokers: GroupBrokers,
        reached: Mapping[MessageQueue, int],
        send: Callable[[Sequence[Attempt]], None],
        spark: SparkSession | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledger = ledger
        self._group = group
        self._brokers = brokers
        self._reached = reached
        self._send = send
        self._spark = spark
        self._clock = clock
        self._now = now
        self._looks = threading.Lock()
        self._looked_at: float | None = None

    def look(self) -> int:
        """Sends again what is late, where there was no look for a while; returns how many messages.

        While something waits on the retry topic nothing is known of what is missing: the next look is not put
        off by that.
        """
        if not self._looks.acquire(blocking=False):
            return 0
        try:
            if self._looked_at is not None and self._clock() - self._looked_at < LOOK_AGAIN_S:
                return 0
            if not self._all_is_read():
                return 0
            self._looked_at = self._clock()
            late = self._late()
            if late:
                _log.warning(
                    "%s retries of group %s did not come back in time: they are sent again",
                    *(len(late), self._group),
                )
                try:
                    self._send(late)
                except (PySparkException, Py4JError) as error:
                    _log.warning("they could not be sent, and are looked for again later: %s", error)
            return len(late)
        finally:
            self._looks.release()

    def _all_is_read(self) -> bool:
        try:
            held = self._brokers.queues(retry_topic(self._group))
        except LakeMQError as error:
            if error.code != "TOPIC_NOT_EXIST" and not may_pass(error):
                raise
            return False
        return all(
            bounds.max_offset <= self._reached.get(queue, bounds.min_offset) for queue, bounds in held.items()
        )

    def _late(self) -> list[Attempt]:
        due = (self._now() - LATE).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        found: list[Attempt] = select(
            self._ledger,
            f"SELECT {', '.join(DELIVERY_KEY[1:])} FROM pending_retries "
            f"WHERE consumer_group = '{self._group}' AND next_attempt_at < CAST('{due}' AS TIMESTAMP)",
            self._spark,
        )
        return found


def send_again(
    spark: SparkSession, ledger: LedgerLocation, group: str, endpoint: str, late: Sequence[Attempt]
) -> None:
    """Sends retries of a group to its retry topic, without a delay.

    Args:
        spark: the session.
        ledger: the group's ledger, which has their bodies.
        group: the group.
        endpoint: the broker.
        late: the failed attempts.
    """
    chosen = F.broadcast(spark.createDataFrame(list(late), _TYPES))
    failed = ledger.read(spark, DELIVERIES).where(f"consumer_group = '{group}' AND verdict = '{RETRY}'")
    retried = retried_messages(failed.join(chosen, [*DELIVERY_KEY[1:]], "left_semi"), group)
    messages = retried.drop("delay_level", DUE_AT)
    messages.write.format("lakemq").mode("append").options(
        endpoint=endpoint, brokerAway="elsewhere", retryTimeoutMs=_TRY_FOR_MS
    ).save()
