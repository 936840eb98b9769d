"""What rows a verdict asks to write, made plain.

Owns their bounds, and that they are plain data: whether they fit a table is said where the tables are known
(group/carried.py). Pure.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from lakemq.handler import TableRow

MOST_ROWS = 1_000
"""Rows of one verdict."""
MOST_BYTES = 4 << 20
"""Of the rows of one verdict together, as they are kept."""
MOST_LEVELS = 32
"""Of lists and mappings inside each other."""

PlainRow = tuple[str, dict[str, Any]]
"""A table's name, and the values by their columns."""


def plain_rows(given: Any) -> bytes | None:
    """The rows of a verdict, as `rows_in` reads them; None without.

    Args:
        given: what the verdict holds.

    Raises:
        TypeError, ValueError: They are none, too many or too large, or hold what no table takes.
    """
    rows = (given,) if isinstance(given, TableRow) else tuple(given)
    if not rows:
        return None
    if len(rows) > MOST_ROWS:
        raise ValueError(f"a verdict writes {MOST_ROWS:,} rows at most, not {len(rows):,}")
    packed = pickle.dumps([_plain_row(row) for row in rows], protocol=pickle.HIGHEST_PROTOCOL)
    if len(packed) > MOST_BYTES:
        raise too_large(len(packed))
    return packed


def rows_in(packed: bytes) -> list[PlainRow]:
    """The rows that `plain_rows` packed: of Python's own types alone."""
    rows: list[PlainRow] = pickle.loads(packed)
    return rows


def too_large(size: int) -> ValueError:
    """The error for rows of so many bytes."""
    return ValueError(f"the rows of a verdict take {MOST_BYTES:,} bytes at most, not {size:,}")


def _plain_row(row: Any) -> PlainRow:
    if not isinstance(row, TableRow):
        raise TypeError(f"a verdict writes TableRow, not {type(row).__name__}")
    if not isinstance(row.table, str):
        raise TypeError(f"the name of a table is a text, not {type(row.table).__name__}")
    if not isinstance(row.values, Mapping):
        raise TypeError(f"the values of a row are a mapping, not {type(row.values).__name__}")
    values = {}
    for name, value in row.values.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a column is a text, not {type(name).__name__}")
        plain = str.__str__(name)
        values[plain] = _plain(value, plain, 1)
    return str.__str__(row.table), values


def _plain(value: Any, column: str, level: int) -> Any:
    if level > MOST_LEVELS:
        raise ValueError(f"{column}: lists and mappings have {MOST_LEVELS} levels at most")
    if value is None or isinstance(value, bool):
        return value
    # A subclass may pickle as it likes: what goes on is Python's own.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, Decimal):
        return Decimal(value)
    if isinstance(value, datetime):
        try:
            return _plain_time(value)
        except OverflowError:
            raise ValueError(f"{column}: {value} is before or behind all times in UTC") from None
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, Mapping):
        pairs = [(_plain(k, column, level + 1), _plain(v, column, level + 1)) for k, v in value.items()]
        if any(isinstance(key, (list, dict)) for key, _ in pairs):
            raise TypeError(f"{column}: a mapping's keys are single values")
        return dict(pairs)
    if isinstance(value, (list, tuple)):
        return [_plain(item, column, level + 1) for item in value]
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{column}: no table takes {type(value).__name__}") from None


def _plain_time(value: datetime) -> datetime:
    plain = datetime(
        *(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond),
        fold=value.fold,
    )
    offset = value.utcoffset()
    return plain if offset is None else (plain - offset).replace(tzinfo=UTC, fold=0)
