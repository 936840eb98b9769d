"""Ranges of original positions, as a query of a ledger asks for them.

Owns a span and its SQL. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Offsets `low` to `high` (both included) of one queue; of all queues of a topic without `queue_id`."""

    topic: str
    queue_id: int | None
    low: int
    high: int


def within_sql(span: Span) -> str:
    """A condition on a table's rows, of either engine: a position is within a span."""
    within = f"(topic = {quoted(span.topic)} AND queue_offset BETWEEN {span.low} AND {span.high}"
    return f"{within})" if span.queue_id is None else f"{within} AND queue_id = {span.queue_id})"


def quoted(text: str) -> str:
    """A text of standard SQL, as DataFusion reads it: a backslash is a character like others."""
    return "'" + text.replace("'", "''") + "'"
