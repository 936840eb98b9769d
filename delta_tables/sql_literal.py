"""A text as SQL that both engines read the same.

Owns the writing of literals: in Spark a backslash begins an escape, in DataFusion it is one.
"""

from __future__ import annotations

from typing import Final

_BACKSLASH: Final = "chr(92)"


def literal(value: str | int) -> str:
    """A value as an expression.

    >>> literal("it's"), literal(17)
    ("'it''s'", '17')
    """
    if isinstance(value, int):
        return str(value)
    parts = ["'" + part.replace("'", "''") + "'" for part in value.split("\\")]
    return parts[0] if len(parts) == 1 else f"({f' || {_BACKSLASH} || '.join(parts)})"
