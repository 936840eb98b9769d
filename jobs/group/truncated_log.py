"""Where a group goes on behind a truncated log: offsets that it has read and that are other messages now.

Owns the table `truncated_ranges`, and on the driver what its rows make of the names in the ledger.

Invariants: a range is in the table before a message of it is handled under its new name; the group's retry
topic has none, since its rows are keyed by the positions of the original messages.

Threads: the group job's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_tables.data_losses import LostRange
from delta_tables.idempotent import append_arrow_once
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.truncated_ranges import TRUNCATED_RANGES
from jobs.group.given_again import NO_OTHER_NAMES, GivenAgain, LedgerNames, name_since
from store_native.errors import from_code
from store_native.names import is_retry_topic
from structured_streaming.offsets import MessageQueue
from structured_streaming.source.data_loss import TRUNCATED_LOG, Loss

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_RANGES = """\
SELECT topic, broker_name, queue_id, from_offset, to_offset + 1 AS end_offset, epoch FROM truncated_ranges
WHERE consumer_group = '{group}'"""
_GO_ON = "Go on with --on-data-loss record, or use another group or ledger for what is there now"
_UNKNOWN = "Use another group or ledger for what is there now"


def ledger_names(ledger: LedgerLocation, group: str, spark: SparkSession | None = None) -> LedgerNames:
    """Reads what the messages of a group's queues are called in its ledger.

    Args:
        ledger: the ledger.
        group: the group.
        spark: the session, for a ledger in a catalog.
    """
    if not ledger.exists(TRUNCATED_RANGES, spark):
        return NO_OTHER_NAMES
    rows = select(ledger, _RANGES.format(group=group), spark)
    return LedgerNames(tuple(GivenAgain(MessageQueue(*row[:3]), *row[3:]) for row in rows))


class TruncatedLog:
    """The ranges that one group went on behind.

    Args:
        ledger: the ledger.
        group: the group.
        spark: the session, for a ledger in a catalog.
        goes_on: whether the group may go on behind a further one.

    Attributes:
        names: what the messages are called; the brokers' names before `begin`.
    """

    def __init__(self, ledger: LedgerLocation, group: str, spark: SparkSession, *, goes_on: bool) -> None:
        self._ledger = ledger
        self._group = group
        self._spark = spark
        self._goes_on = goes_on
        self.names = NO_OTHER_NAMES

    def begin(self) -> None:
        """Reads what the group went on behind before; once the fence is taken."""
        self.names = ledger_names(self._ledger, self._group, self._spark)

    def go_on(self, found: Iterable[Loss]) -> list[LostRange]:
        """Notes ranges, and goes on behind them.

        Args:
            found: what brokers have given again of what the group has read, or was about to.

        Returns:
            The ranges, by the names that their messages had until now: what of them has no delivery is lost.

        Raises:
            LakeMQError: OFFSET_ILLEGAL, naming the queues and ranges: the group does not go on, or where a
                range begins is not known.
        """
        losses = [loss for loss in found if loss.queue is not None and not is_retry_topic(loss.queue.topic)]
        exact = all(loss.epochs is not None for loss in losses)
        if losses and not (exact and self._goes_on):
            raise from_code(
                "OFFSET_ILLEGAL",
                f"{'; '.join(loss.what for loss in losses)}. The ledger has these offsets already, as those "
                f"of the messages that are gone. {_GO_ON if exact else _UNKNOWN}",
            )
        lost: list[LostRange] = []
        for again, epoch_before in _joined(losses):
            lost += [
                LostRange(*part.queue, part.start, part.end, TRUNCATED_LOG)
                for part in self.names.before(again.epoch).parts(*again[:3])
            ]
            if not any(_covers(held, again) for held in self.names.ranges):
                self._note(again, epoch_before)
        return lost

    def _note(self, again: GivenAgain, epoch_before: int) -> None:
        named = name_since(again.queue.broker_name, again.epoch)
        row = {
            "consumer_group": self._group,
            "topic": again.queue.topic,
            "broker_name": again.queue.broker_name,
            "queue_id": again.queue.queue_id,
            "from_offset": again.start,
            "to_offset": again.end - 1,
            "epoch_before": epoch_before,
            "epoch": again.epoch,
            "named": named,
            "recorded_at": datetime.now(UTC),
        }
        self._ledger.create(TRUNCATED_RANGES, spark=self._spark)
        append_arrow_once(
            pa.Table.from_pylist([row], schema=TRUNCATED_RANGES.arrow_schema),
            self._ledger,
            TRUNCATED_RANGES,
            app_id="/".join(("lakemq", self._group, *map(str, again.queue), str(again.epoch))),
            version=again.end,
            spark=self._spark,
        )
        _log.warning(
            "group %s goes on behind a truncated log: what has offsets [%s, %s) of %s now is of "
            "broker %s in the ledger",
            *(self._group, again.start, again.end, again.queue, named),
        )
        self.names = LedgerNames((*self.names.ranges, again))


def _joined(losses: Iterable[Loss]) -> list[tuple[GivenAgain, int]]:
    """One range for a queue and the epoch that gave it again, and the epoch before."""
    found: dict[tuple[MessageQueue, int], tuple[GivenAgain, int]] = {}
    for loss in losses:
        assert loss.queue is not None
        assert loss.epochs is not None, "they were looked at"
        before, epoch = loss.epochs
        held, earlier = found.get(
            (loss.queue, epoch), (GivenAgain(loss.queue, loss.start, loss.end, epoch), before)
        )
        joined = held._replace(start=min(held.start, loss.start), end=max(held.end, loss.end))
        found[loss.queue, epoch] = (joined, min(earlier, before))
    return list(found.values())


def _covers(held: GivenAgain, again: GivenAgain) -> bool:
    return held[0::3] == again[0::3] and held.start <= again.start and again.end <= held.end
