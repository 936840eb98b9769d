"""The quick start's queries of the ledger, in the SQL a user would type into ``lakemq sql``.

Owns the texts. Every answer comes from the tables; nothing is remembered from the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_tables.ledger_reader import LedgerReader

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Counts:
    """The totals; see :class:`lakemq.quickstart.report.Report`."""

    consumed: int
    retried: int
    dead_lettered: int
    finished: int
    gaps: int
    duplicates: int


class SqlQueries:
    """Queries of one group.

    Args:
        ledger: The group's ledger.
        group: The group.
    """

    def __init__(self, ledger: LedgerReader, group: str) -> None:
        self._ledger = ledger
        self._mine = f"consumer_group = {literal(group)}"

    def counts(self) -> Counts:
        """Returns the totals."""
        position = "topic, broker_name, queue_id, queue_offset"
        finished = (
            f"SELECT {position} FROM deliveries WHERE {self._mine} AND verdict = 'ACK'"
            f" UNION SELECT {position} FROM dead_letters WHERE {self._mine}"
        )
        return Counts(
            consumed=self._number(f"count(*) FROM deliveries WHERE {self._mine} AND verdict = 'ACK'"),
            retried=self._number(
                f"count(*) FROM deliveries WHERE {self._mine} AND verdict = 'RETRY'"
                " AND started_at IS NOT NULL"
            ),
            dead_lettered=self._number(f"count(*) FROM dead_letters WHERE {self._mine}"),
            finished=self._number(f"count(*) FROM ({finished})"),
            gaps=self._number(f"coalesce(sum(missing), 0) FROM delivery_gaps WHERE {self._mine}"),
            duplicates=self._number(f"count(*) FROM duplicate_deliveries WHERE {self._mine}"),
        )

    def verdicts(self) -> list[Row]:
        """Returns the deliveries by attempt and verdict."""
        return self._rows(
            f"SELECT attempt, verdict, count(*) AS deliveries FROM deliveries WHERE {self._mine}"
            " GROUP BY attempt, verdict ORDER BY attempt, verdict"
        )

    def example_key(self) -> str | None:
        """Returns a key under which some messages went well and some did not."""
        rows = self._rows(
            f"SELECT keys FROM delivery_history WHERE {self._mine} AND keys <> '' GROUP BY keys"
            " HAVING count(*) >= 5 AND sum(CASE WHEN state = 'DEAD' THEN 1 ELSE 0 END) BETWEEN 1 AND 4"
            " ORDER BY keys LIMIT 1"
        )
        return str(rows[0]["keys"]) if rows else None

    def dead_letter(self, key: str | None) -> Row | None:
        """Returns one dead letter, of that key if there is one."""
        mine = self._mine if key is None else f"{self._mine} AND array_join(keys, ' ') = {literal(key)}"
        rows = self._rows(
            f"SELECT * FROM dead_letters WHERE {mine} ORDER BY topic, queue_id, queue_offset LIMIT 1"
        )
        return rows[0] if rows else None

    def attempts(self, letter: Row) -> list[Row]:
        """Returns every delivery of a dead letter's message."""
        return self._rows(
            "SELECT attempt, verdict, source_topic, source_queue_id, source_queue_offset,"
            " started_at, next_attempt_at, coalesce(error_text, reason) AS why FROM deliveries"
            f" WHERE {self._mine} AND topic = {literal(letter['topic'])}"
            f" AND queue_id = {letter['queue_id']} AND queue_offset = {letter['queue_offset']}"
            " ORDER BY attempt"
        )

    def history(self, key: str | None) -> list[Row]:
        """Returns five rows of delivery_history, those that did not go well first."""
        mine = self._mine if key is None else f"{self._mine} AND keys = {literal(key)}"
        return self._rows(
            "SELECT topic, queue_id, queue_offset, state, attempt_count, attempts, first_started_at"
            " FROM delivery_history"
            f" WHERE {mine} ORDER BY attempt_count DESC, topic, queue_id, queue_offset LIMIT 5"
        )

    def _number(self, select: str) -> int:
        column = self._ledger.sql(f"SELECT {select}").column(0)
        return int(column[0].as_py())

    def _rows(self, text: str) -> list[Row]:
        rows: list[Row] = self._ledger.sql(text).to_pylist()
        return rows


def literal(text: str) -> str:
    """Writes a text as an SQL literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
