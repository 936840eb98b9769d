"""Durations as people write them: `500ms`, `10s`, `1.5m`, `2h`, `7d`.

Owns the one grammar of the command line, of handlers, of the jobs and of the broker's settings
(docs/ledger.md, "Durations"), and how a duration is written back.

Invariants: a duration is a whole number of milliseconds from 0 to MAX_MS; what `format_ms` writes, `parse_ms`
reads as the same duration.
"""

from __future__ import annotations

import re
from fractions import Fraction

MAX_MS = 36_500 * 86_400_000
"""100 years: a time so far from now is still one that every clock and table holds."""

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(ms|s|m|h|d)?")


def parse_ms(text: str, *, bare: str | None = None) -> int:
    """Reads a duration in milliseconds: a number, which may have decimals, and a unit (ms, s, m, h or d).

    A fraction of a millisecond is rounded.

    >>> parse_ms("1.5m"), parse_ms("10", bare="s")
    (90000, 10000)

    Args:
        text: What was written; spaces around it and before the unit do not count.
        bare: The unit of a number without one; None refuses such a number.

    Raises:
        ValueError: It is no duration, or one of more than MAX_MS.
    """
    match = _DURATION.fullmatch(text.strip())
    unit = match and (match[2] or bare)
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not a duration: write 500ms, 10s, 2m, 1h or 7d")
    duration_ms = round(Fraction(match[1]) * _UNIT_MS[unit])
    if duration_ms > MAX_MS:
        raise ValueError(f"{text!r} is longer than {format_ms(MAX_MS)}, the longest duration")
    return duration_ms


def format_ms(duration_ms: int) -> str:
    """Writes a duration in the longest unit of which it is a whole number.

    >>> format_ms(7_200_000), format_ms(90_000), format_ms(0)
    ('2h', '90s', '0ms')
    """
    whole = [unit for unit, size in _UNIT_MS.items() if duration_ms >= size and duration_ms % size == 0]
    unit = whole[-1] if whole else "ms"
    return f"{duration_ms // _UNIT_MS[unit]}{unit}"
