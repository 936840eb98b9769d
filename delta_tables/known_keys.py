"""What a table knows already of a batch's own positions, without reading its history.

Owns the query and its bounds.

Invariants: the answer holds every row of the group at the positions asked for. Delta skips files by the
minimum and maximum of group, topic, queue and offset that their entries hold, so the cost follows the
batch, not the ledger. It runs before a batch is written, never inside the write: an append whose plan reads
the same table conflicts with every other commit to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

MOST_SPANS = 64
"""Spans in one query: more of them cost more to compare with each file than they skip."""

Position = tuple[str, str, int, int]
"""topic, broker_name, queue_id, queue_offset"""


@dataclass(frozen=True)
class Span:
    """Offsets `low` to `high` (both included) of one queue; of all queues of a topic without `queue_id`."""

    topic: str
    queue_id: int | None
    low: int
    high: int


def known_rows(
    spark: SparkSession,
    ledger: LedgerLocation,
    table: Table,
    group: str,
    positions: Iterable[Position],
    columns: Sequence[str],
    *,
    attempts_from: int | None = None,
) -> set[tuple[Any, ...]]:
    """The rows of a group at some positions; it may hold rows beside them.

    Args:
        spark: the session, for a ledger in a catalog.
        ledger: where the table is.
        table: a table with the columns consumer_group, topic, queue_id and queue_offset.
        group: the group.
        positions: the original positions of the batch's messages.
        columns: what is returned of a row.
        attempts_from: only rows of this attempt or later.
    """
    return rows_within(spark, ledger, table, group, spans(positions), columns, attempts_from=attempts_from)


def rows_within(
    spark: SparkSession | None,
    ledger: LedgerLocation,
    table: Table,
    group: str,
    asked: Sequence[Span],
    columns: Sequence[str],
    *,
    attempts_from: int | None = None,
) -> set[tuple[Any, ...]]:
    """The rows of a group within some spans, each once; the arguments are those of `known_rows`."""
    if not asked:
        return set()
    if isinstance(ledger, PathLedger):
        import pyarrow as pa
        from deltalake import QueryBuilder

        later = "" if attempts_from is None else f" AND attempt >= {attempts_from}"
        text = (
            f"SELECT {', '.join(columns)} FROM {table.name} "
            f"WHERE consumer_group = {_quoted(group)}{later} AND ({' OR '.join(map(within_sql, asked))})"
        )
        found = pa.table(QueryBuilder().register(table.name, ledger.open(table)).execute(text).read_all())
    else:
        from pyspark.sql import functions as F

        assert spark is not None, "a ledger in a catalog is read through Spark"
        where = (F.col("consumer_group") == group) & _any_of(asked)
        if attempts_from is not None:
            where = where & (F.col("attempt") >= attempts_from)
        found = ledger.read(spark, table).where(where).select(*columns).toArrow()
    return {tuple(row.values()) for row in found.to_pylist()}


def spans(positions: Iterable[Position], most: int = MOST_SPANS) -> list[Span]:
    """Covers positions with at most `most` spans (one per topic at least), split where the gaps are widest.

    A batch of retries holds messages of very different age: one span over all of them would cover
    most of the history.
    """
    queues: dict[tuple[str, int | None], set[int]] = {}
    for topic, _, queue_id, offset in positions:
        queues.setdefault((topic, queue_id), set()).add(offset)
    if len(queues) > most:
        topics: dict[tuple[str, int | None], set[int]] = {}
        for (topic, _), offsets in queues.items():
            topics.setdefault((topic, None), set()).update(offsets)
        queues = topics
    pieces = max(1, most // len(queues)) if queues else 0
    return [
        Span(topic, queue_id, low, high)
        for (topic, queue_id), offsets in queues.items()
        for low, high in _split(sorted(offsets), pieces)
    ]


def _split(offsets: list[int], pieces: int) -> list[tuple[int, int]]:
    """Cuts sorted offsets at their widest gaps."""
    gaps = [(b - a, at) for at, (a, b) in enumerate(itertools.pairwise(offsets), start=1)]
    widest = sorted((gap for gap in gaps if gap[0] > 1), reverse=True)[: pieces - 1]
    cuts = [0, *sorted(at for _, at in widest), len(offsets)]
    return [(offsets[a], offsets[b - 1]) for a, b in itertools.pairwise(cuts)]


def within_sql(span: Span) -> str:
    """A condition on a table's rows, of either engine: a position is within a span."""
    within = f"(topic = {_quoted(span.topic)} AND queue_offset BETWEEN {span.low} AND {span.high}"
    return f"{within})" if span.queue_id is None else f"{within} AND queue_id = {span.queue_id})"


def _quoted(text: str) -> str:
    """A text of standard SQL, as DataFusion reads it: a backslash is a character like others."""
    return "'" + text.replace("'", "''") + "'"


def _any_of(asked: Sequence[Span]) -> Column:
    from pyspark.sql import functions as F

    def condition(span: Span) -> Column:
        within = (F.col("topic") == span.topic) & F.col("queue_offset").between(span.low, span.high)
        return within if span.queue_id is None else within & (F.col("queue_id") == span.queue_id)

    return reduce(lambda one, other: one | other, map(condition, asked))
