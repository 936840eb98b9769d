"""How far a group is with one message.

Owns the queries of the ledger, and which messages cannot be given up any more.

Invariants: a message with a last verdict is refused, also a dead letter that was replayed and has had no
attempt since; nothing is guessed of a group that the ledger does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from delta_tables.consumer_offsets import RETENTION
from delta_tables.deliveries import ACK, DEAD, DELIVERIES, DROPPED, PARKED, SHARDING_KEY_PROPERTY
from delta_tables.known_groups import check_group
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.opened_ledger import OpenedLedger
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.sql_literal import literal
from jobs.group.fence import application
from jobs.group.skips.open_skips import OpenSkip, open_skips
from jobs.group.truncated_log import ledger_names
from store_native.errors import InvalidRequest
from structured_streaming.offsets import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["RETRY", "PARKED", "NOT_HANDLED"]
"""Its next attempt is on its way; it waits for an earlier one of its lane; the group has not come to it."""

_ROWS = f"""\
SELECT attempt, verdict, message_id, reason, error_type, error_text, finished_at, next_attempt_at,
  properties['{SHARDING_KEY_PROPERTY}'] AS sharding_key
FROM deliveries WHERE consumer_group = '{{group}}' AND {{here}} ORDER BY attempt, finished_at"""
_PARKED_BEHIND = """\
SELECT count(*) AS parked FROM parked_messages
WHERE consumer_group = '{group}' AND {queue} AND sharding_key {key} AND queue_offset > {offset}"""
_REACHED = """\
SELECT reached_offset, subscription FROM group_progress WHERE consumer_group = '{group}' AND {queue}"""
_RETAINED = f"""\
SELECT max(next_offset) AS next_offset,
  (SELECT max(subscription) FROM group_progress WHERE consumer_group = '{{group}}' AND {{topic}}) AS tags
FROM consumer_offsets WHERE consumer_group = '{{group}}' AND {{queue}} AND query_id = '{RETENTION}'"""
_DONE = {ACK: "is done: acknowledged", DEAD: "is given up already", DROPPED: "is dropped already"}


class Place(NamedTuple):
    """The original position of a message."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return f"{self.topic}, broker {self.broker_name}, queue {self.queue_id}, offset {self.queue_offset}"


@dataclass(frozen=True)
class MessageState:
    """A message that can be given up.

    Attributes:
        state: what it waits for.
        attempts: made so far.
        message_id: its id.
        last_error: what its last attempt ended with.
        due_at: when its next attempt is due.
        parked_behind: how many messages wait behind it on its lane (orderly mode).
    """

    state: State
    attempts: int
    message_id: str
    last_error: str | None = None
    due_at: datetime | None = None
    parked_behind: int = 0


@dataclass(frozen=True)
class Reached:
    """How far a group has read a queue.

    Attributes:
        offset: what it reads next.
        tags: which messages it takes.
    """

    offset: int
    tags: str


class GroupLedger:
    """What a ledger says of the messages of one group.

    Args:
        ledger: A ledger's directory, or `catalog.schema`.
        group: The group.
        spark: A session that reaches a ledger in a catalog.

    Attributes:
        opened: The ledger.

    Raises:
        InvalidRequest: GROUP_ILLEGAL; ARGUMENT_ILLEGAL when there is no ledger, or it does not know the
            group; on a path also when it knows it in broadcast mode only.
    """

    def __init__(self, ledger: str, group: str, *, spark: SparkSession | None = None) -> None:
        self.opened = OpenedLedger(ledger, spark)
        self._reader = self.opened.reader
        location = self.opened.location
        check_group(location, group, spark)
        self.group = group
        location.create(DELIVERIES, spark=spark)
        # Of a catalog's table no SQL tells the transactions that it knows.
        on_path = location.open(DELIVERIES) if isinstance(location, PathLedger) else None
        if on_path is not None and on_path.transaction_version(application(group)) is None:
            raise refused(
                f"group {group} has run with the ledger {ledger} in broadcast mode only, where a message has "
                "one attempt and nothing is skipped"
            )

    def open_skips(self) -> list[OpenSkip]:
        """The group's messages that are given up and have had no attempt since."""
        location, spark = self.opened.location, self.opened.spark
        there = location.exists(SKIPPED_MESSAGES, spark)
        return open_skips(location, self.group, spark) if there else []

    def given_again(self, at: Place) -> str | None:
        """By which name of its broker the ledger has the message there; None: its own."""
        names = ledger_names(self.opened.location, self.group, self.opened.spark)
        ((queue, _, _),) = names.parts(MessageQueue(*at[:3]), at.queue_offset, at.queue_offset + 1)
        return None if queue.broker_name == at.broker_name else queue.broker_name

    def state(self, at: Place) -> MessageState | Reached:
        """How far the group is with a message; how far it has read the queue where it has no row of it.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL: the group is done with it, or has not read its queue.
        """
        tables = self._reader.snapshot()
        broker = f"broker_name = {literal(at.broker_name)}"
        queue = f"topic = {literal(at.topic)} AND {broker} AND queue_id = {at.queue_id}"
        here = f"{queue} AND queue_offset = {at.queue_offset}"
        rows = tables.sql(_ROWS.format(group=self.group, here=here)).to_pylist()
        if rows:
            found = self._waiting(at, rows)
            key = rows[-1]["sharding_key"]
            behind = _PARKED_BEHIND.format(
                group=self.group,
                queue=queue,
                key="IS NULL" if key is None else f"= {literal(key)}",
                offset=at.queue_offset,
            )
            return replace(found, parked_behind=int(tables.sql(behind).column("parked")[0].as_py()))
        reports = tables.sql(_REACHED.format(group=self.group, queue=queue)).to_pylist()
        if not reports:
            topic = f"topic = {literal(at.topic)}"
            (left,) = tables.sql(_RETAINED.format(group=self.group, queue=queue, topic=topic)).to_pylist()
            return self._behind_retention(at, left["next_offset"], left["tags"])
        return Reached(int(reports[0]["reached_offset"]), str(reports[0]["subscription"]))

    def _behind_retention(self, at: Place, kept_from: int | None, tags: str | None) -> Reached:
        """How far the group has come on a queue of which no report is left."""
        if kept_from is None:
            raise refused(f"group {self.group} has not read that queue with this ledger: {at}")
        if at.queue_offset < kept_from:
            raise refused(
                f"group {self.group} is done with it: what became of the messages before offset {kept_from} "
                f"was deleted by maintenance (--keep-days) ({at})"
            )
        return Reached(kept_from, "*" if tags is None else tags)

    def _waiting(self, at: Place, rows: Sequence[Mapping[str, Any]]) -> MessageState:
        """What a message waits for, of its rows in order."""
        made = [row for row in rows if row["verdict"] != PARKED]
        attempts = int(made[-1]["attempt"]) if made else 0
        is_parked = any(row["verdict"] == PARKED and row["attempt"] > attempts for row in rows)
        done = [row for row in made if row["verdict"] in (ACK, DROPPED)]
        if not (done or is_parked):
            done = [row for row in made[-1:] if row["verdict"] == DEAD]
        for row in done:
            why = f": {row['reason']}" if row["reason"] else ""
            when = f"at attempt {row['attempt']} of group {self.group}"
            raise refused(f"message {row['message_id']} {_DONE[row['verdict']]} {when}{why} ({at})")
        message_id = str(rows[-1]["message_id"])
        if is_parked:
            return MessageState("PARKED", attempts, message_id, _error(made))
        return MessageState("RETRY", attempts, message_id, _error(made), made[-1]["next_attempt_at"])


def refused(what: str) -> InvalidRequest:
    """The error of a message that cannot be given up."""
    return InvalidRequest("ARGUMENT_ILLEGAL", what)


def _error(made: Sequence[Mapping[str, Any]]) -> str | None:
    if not made:
        return None
    last = made[-1]
    return ": ".join(filter(None, (last["error_type"], last["error_text"]))) or last["reason"]
