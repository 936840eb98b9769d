"""What a group has handled of a topic behind given positions, as the ledger has it.

Owns the queries. A group is moved neither back nor ahead by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from delta_tables.deliveries import ACK, DEAD, PARKED
from delta_tables.sql_literal import literal

_REACHED = """\
SELECT broker_name, queue_id, max(reached) AS reached FROM (
  SELECT broker_name, queue_id, reached_offset AS reached FROM group_progress WHERE {of_topic}
  UNION ALL
  SELECT broker_name, queue_id, max(queue_offset) + 1 AS reached FROM deliveries WHERE {of_topic}
  GROUP BY broker_name, queue_id
) AS told GROUP BY broker_name, queue_id"""
_HANDLED = f"""\
SELECT broker_name, queue_id, count(DISTINCT queue_offset) AS handled,
  count(DISTINCT CASE WHEN verdict = '{ACK}' THEN queue_offset END) AS acknowledged,
  count(DISTINCT CASE WHEN verdict = '{DEAD}' THEN queue_offset END) AS given_up
FROM deliveries WHERE {{of_topic}} AND verdict <> '{PARKED}' AND ({{behind}})
GROUP BY broker_name, queue_id"""

Queue = tuple[str, int]
"""Broker and queue."""


@dataclass(frozen=True, slots=True)
class HandledBehind:
    """One queue of a topic, and a position in it.

    Attributes:
        reached: What the group reads next; None where it has not read the queue.
        handled: Messages from the position on that the ledger has an attempt of.
        acknowledged: Those of them that went well.
        given_up: Those of them that became dead letters, replayed ones included.
        unread: Messages between what the group reads next and a position ahead of that.
    """

    reached: int | None
    handled: int = 0
    acknowledged: int = 0
    given_up: int = 0
    unread: int = 0


class _Queried(Protocol):
    def sql(self, text: str) -> pa.Table:
        """Runs one SELECT."""


def handled_behind(
    ledger: _Queried, group: str, topic: str, positions: Mapping[Queue, int]
) -> dict[Queue, HandledBehind]:
    """Looks at each queue from a position on.

    Args:
        ledger: As it is at one moment.
        group: The group.
        topic: The topic; messages that were retried count by their original positions.
        positions: By queue.
    """
    of_topic = f"consumer_group = {literal(group)} AND topic = {literal(topic)}"
    reached = {
        (row["broker_name"], row["queue_id"]): row["reached"]
        for row in ledger.sql(_REACHED.format(of_topic=of_topic)).to_pylist()
    }
    found = {
        queue: HandledBehind(reached.get(queue), unread=max(0, at - reached.get(queue, at)))
        for queue, at in positions.items()
    }
    behind = " OR ".join(
        f"(broker_name = {literal(name)} AND queue_id = {queue_id} AND queue_offset >= {at})"
        for (name, queue_id), at in positions.items()
    )
    rows = ledger.sql(_HANDLED.format(of_topic=of_topic, behind=behind or "false")).to_pylist()
    for row in rows:
        queue = row["broker_name"], row["queue_id"]
        found[queue] = HandledBehind(
            found[queue].reached,
            row["handled"],
            row["acknowledged"],
            row["given_up"],
            found[queue].unread,
        )
    return found
