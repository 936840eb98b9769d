"""What a table knows already of a batch's own positions, without reading its history.

Owns the question and its bounds; each kind of ledger answers it in its own way (`rows_within`).

Invariants: the answer holds every row of the group at the positions asked for. Delta skips files by the
minimum and maximum of group, topic, queue and offset that their entries hold, so the cost follows the
batch, not the ledger. It runs before a batch is written, never inside the write: an append whose plan reads
the same table conflicts with every other commit to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.spans import Span
from delta_tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_SPANS = 64
"""Spans in one query: more of them cost more to compare with each file than they skip."""

Position = tuple[str, str, int, int]
"""topic, broker_name, queue_id, queue_offset"""


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
    found = ledger.rows_within(spark, table, group, asked, columns, attempts_from)
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
