"""Dead letters of a group chosen by SQL, and by what an operator did with them before.

Owns the queries.

Invariants: only the group's own dead letters are found, and `dead_letters` in the predicate is these alone; a
dead letter is found once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from delta_tables.opened_ledger import OpenedLedger
from delta_tables.replays import DISCARD
from delta_tables.sql_literal import literal
from jobs.dlq.condition import check_condition
from store_native import validate_group
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = ("topic", "broker_name", "queue_id", "queue_offset", "attempts")

State = Literal["open", "discarded", "any"]
"""Neither replayed nor discarded; discarded and not replayed since; whatever was done."""

_STATES: dict[State, str] = {
    "open": "sent.replay_id IS NULL AND discarded.replay_id IS NULL",
    "discarded": "sent.replay_id IS NULL AND discarded.replay_id IS NOT NULL",
    "any": "true",
}

_OWN = """\
WITH dead_letters AS (SELECT * FROM dead_letters WHERE consumer_group = '{group}')"""
"""The table's name is the group's own part of it, also in a subquery of the predicate.

It is an alias besides where the predicate follows: of `t WHERE (true)` Spark makes a table called WHERE.
"""
_CHOSEN = """\
{own},
chosen AS (SELECT * FROM dead_letters AS dead_letters WHERE (
{predicate}
)),
done AS (SELECT * FROM replays WHERE consumer_group = '{group}')
SELECT {columns} FROM chosen
LEFT JOIN (SELECT * FROM done WHERE coalesce(action, '') <> '{discard}') AS sent ON {sent}
LEFT JOIN (SELECT * FROM done WHERE action = '{discard}') AS discarded ON {discarded}
WHERE {state}
ORDER BY {order}"""
_FITTING = """\
{own}
SELECT * FROM dead_letters AS dead_letters WHERE (
{predicate}
)"""
_NAMED = """\
{own}
SELECT chosen.* FROM (VALUES {keys}) AS named ({names}) JOIN dead_letters AS chosen ON {named}
WHERE chosen.queue_offset BETWEEN {first} AND {last}
ORDER BY {order}"""
"""The range of offsets spares the engine the files that have none of them."""
_ROWS_AT_ONCE = 16
"""A body has up to 4 MiB."""
_BY_POSITION = ", ".join(f"chosen.{name}" for name in KEY)
_OF_ATTEMPT = (
    *("attempt", "verdict", "started_at", "finished_at", "next_attempt_at"),
    *("reason", "error_type", "error_text", "worker"),
)
_DONE = (
    "sent.replayed_at AS replayed_at, discarded.replayed_at AS discarded_at, "
    "discarded.reason AS discard_reason, coalesce(sent.operator, discarded.operator) AS operator, "
    "sent.new_body_sha256 AS replayed_body_sha256"
)


class _Queried(Protocol):
    """A ledger, as it is or as it was."""

    def sql(self, text: str) -> pa.Table:
        """Runs one SELECT."""


class DeadLetterChoice:
    """The dead letters of a group that fit a predicate.

    Args:
        ledger: A ledger's directory, or `catalog.schema`.
        group: The group.
        predicate: SQL over the columns of `dead_letters`.
        state: What was done with them before.
        spark: A session that reaches a ledger in a catalog.

    Raises:
        InvalidRequest: GROUP_ILLEGAL; ARGUMENT_ILLEGAL when there is no ledger, or the predicate is no SQL,
            or has another result each time.
    """

    def __init__(
        self,
        ledger: str,
        group: str,
        predicate: str,
        state: State = "open",
        *,
        spark: SparkSession | None = None,
    ) -> None:
        validate_group(group)
        self.ledger = OpenedLedger(ledger, spark)
        self._reader = self.ledger.reader
        check_condition(predicate)
        self._own = _OWN.format(group=group)
        self.group = group
        self.predicate = predicate
        self.state = state

    def summaries(self) -> pa.Table:
        """Their keys, ids, times and reasons, by position."""
        return self.rows((*KEY, "message_id", "last_attempt_at", "reason", "error_text"))

    def keys(self) -> pa.Table:
        """The keys of these deaths, by position; a message that is given up anew has another."""
        return self.rows(KEY)

    def rows(
        self,
        columns: Sequence[str] | None = None,
        *,
        with_audit: bool = False,
        state: State | None = None,
    ) -> pa.Table:
        """The dead letters as they are now, by position.

        Args:
            columns: Columns of `dead_letters`; None for all.
            with_audit: When they were replayed or discarded, by whom, why and with which other body, as
                further columns.
            state: In the place of the choice's own.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when the predicate is no SQL, or finds a row twice.
        """
        return self._rows(self._reader, columns, with_audit=with_audit, state=state)

    def named(self, keys: pa.Table) -> pa.Table:
        """The dead letters of these keys, of which there is one at least, whole and by position."""
        offsets = keys.column("queue_offset").to_pylist()
        return self._reader.sql(
            _NAMED.format(
                own=self._own,
                keys=", ".join(f"({', '.join(map(literal, key))})" for key in _keys(keys)),
                names=", ".join(KEY),
                named=_same("named"),
                first=min(offsets),
                last=max(offsets),
                order=_BY_POSITION,
            )
        )

    def batches(self) -> Iterator[pa.Table]:
        """The dead letters whole, as they are at one moment, some at a time and in no order.

        What is held of all of them at once is their keys.

        Raises:
            InvalidRequest: As :meth:`rows`.
        """
        ledger = self._reader.snapshot()
        left = set(_keys(self._rows(ledger, KEY)))
        fitting = _FITTING.format(own=self._own, predicate=self.predicate)
        for found in ledger.batches(fitting, _ROWS_AT_ONCE):
            keys = _keys(found)
            yield found.filter(pa.array([key in left for key in keys], pa.bool_()))
            left.difference_update(keys)

    def _rows(
        self,
        ledger: _Queried,
        columns: Sequence[str] | None,
        *,
        with_audit: bool = False,
        state: State | None = None,
    ) -> pa.Table:
        chosen = "chosen.*" if columns is None else ", ".join(f"chosen.{name}" for name in columns)
        found = ledger.sql(
            _CHOSEN.format(
                own=self._own,
                group=self.group,
                predicate=self.predicate,
                sent=_same("sent"),
                discarded=_same("discarded"),
                discard=DISCARD,
                state=_STATES[state or self.state],
                columns=f"{chosen}, {_DONE}" if with_audit else chosen,
                order=_BY_POSITION,
            )
        )
        if found.num_rows != len(set(_keys(found))):
            raise from_code(
                "ARGUMENT_ILLEGAL", "--where is a condition over dead_letters; it finds rows twice"
            )
        return found

    def attempts(self, letter: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The attempts at a dead letter's message, those after a replay too, in order, from `deliveries`."""
        at = " AND ".join(f"{name} = {literal(letter[name])}" for name in KEY[:4])
        rows = self._reader.sql(
            f"SELECT {', '.join(_OF_ATTEMPT)} FROM deliveries WHERE consumer_group = '{self.group}' "
            f"AND {at} AND verdict <> 'PARKED' ORDER BY attempt"
        )
        found: list[dict[str, Any]] = rows.to_pylist()
        return found


def with_id(message_id: str) -> str:
    """The predicate that finds one message."""
    return f"message_id = {literal(message_id)}"


def _keys(letters: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(letters.column(name).to_pylist() for name in KEY), strict=True))


def _same(other: str) -> str:
    return " AND ".join(f"{other}.{name} = chosen.{name}" for name in KEY)
