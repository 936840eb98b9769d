"""What is left of a row's delay when it is sent: rows that are due at a time, however late they are sent.

Owns the column that says when, which only this project's own writers give. Pure.

A broker is told a delay level and nothing finer (`deliver_at` and `delay_ms` are answered with
NOT_IMPLEMENTED): each level is a queue in which the first message is due first. So a rest between two levels
waits the longer one. With the shorter the message would come before the time that its row says; kept here
until its rest is a level's, it would hold up all that is sent behind it.

Invariants: it is no part of a chunk's content: what is sent again, with less of its delay left, has the key
that it had.

Processes: executors.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

DUE_AT = "_due_at"
"""The column: a timestamp; null where the whole delay is counted from the sending."""


def counts_down(rows: pa.Table) -> bool:
    """Says whether rows wait until a time."""
    return {DUE_AT, "delay_level"} <= {*rows.column_names}


def content(rows: pa.Table) -> pa.Table:
    """The rows without the time they are due."""
    return rows.drop_columns([DUE_AT]) if DUE_AT in rows.column_names else rows


def as_sent(rows: pa.Table, level_ms: Sequence[int], now_ms: int) -> pa.Table:
    """The rows as they are sent now: with the shortest delay that is as long as what is left.

    Args:
        rows: with the columns `_due_at` and `delay_level`.
        level_ms: the broker's delay levels in ms, level 1 first.
        now_ms: epoch ms.

    Returns:
        The rows without `_due_at`; no delay is longer than it was.
    """
    due_ms = [None if at is None else at // 1_000 for at in _micros(rows.column(DUE_AT))]
    levels = [
        _level(level, None if due is None else due - now_ms, level_ms)
        for level, due in zip(rows.column("delay_level").to_pylist(), due_ms, strict=True)
    ]
    sent = content(rows)
    at = sent.column_names.index("delay_level")
    return sent.set_column(at, "delay_level", pa.array(levels, sent.schema.field(at).type))


def _level(level: int | None, left_ms: int | None, level_ms: Sequence[int]) -> int | None:
    if not level or left_ms is None:
        return level
    if left_ms <= 0:
        return None
    own_ms = level_ms[min(level, len(level_ms)) - 1]
    enough = [(ms, number) for number, ms in enumerate(level_ms, start=1) if left_ms <= ms < own_ms]
    return min(enough)[1] if enough else level


def _micros(times: pa.ChunkedArray) -> list[int | None]:
    found: list[int | None] = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_pylist()
    return found
