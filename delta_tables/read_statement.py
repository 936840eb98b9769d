"""Which statements a ledger's readers take.

Owns the reading of a statement's beginning, and of its result's names.

Invariants: what passes reads, and does nothing else; a comment cannot hide where it begins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from store_native.errors import from_code

ONLY_READ = (
    "a ledger is only read: one SELECT, WITH, VALUES, FROM, EXPLAIN of such, or DESCRIBE of a table, with no "
    "comment inside a comment"
)
_GAP = r"(?:[\s(]|--[^\n]*(?:\n|\Z)|/\*(?:(?!/\*|\*/).)*\*/)"
"""What may come before a word. The engine nests comments; one inside another could hide where they end."""

_READS = re.compile(
    rf"{_GAP}*(?:(?:(?:explain|describe|desc)\b{_GAP}*(?:(?:analyze|verbose|extended)\b{_GAP}*)*)?"
    rf"(?:select|with|values|from)\b.*|(?:describe|desc)\b{_GAP}*[\w.\"]+[\s;]*)",
    re.IGNORECASE | re.DOTALL,
)

_READING = ("select", "with", "values", "from", "explain", "describe", "desc")
_WORD = re.compile(rf"{_GAP}*(\w+)", re.DOTALL)


def check_reads(text: str) -> None:
    """Refuses what is no statement that reads.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if not _READS.fullmatch(text):
        first = _WORD.match(text)
        strange = first is not None and first[1].lower() not in _READING
        begins = f"the statement begins with {first[1]!r}: " if first and strange else ""
        raise from_code("ARGUMENT_ILLEGAL", begins + ONLY_READ)


def check_names(columns: Sequence[str]) -> None:
    """Refuses a result without columns, and one of which a row could not be a dictionary, or JSON.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if not columns:
        raise from_code("ARGUMENT_ILLEGAL", f"the statement has no result; {ONLY_READ}")
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise from_code("ARGUMENT_ILLEGAL", f"several columns are called {twice[0]}: AS gives them names")
