"""What `--where` may be: one condition, that comes out the same each time it is asked.

Owns the reading of a predicate as pieces.

Invariants: a condition that passes stays inside the parentheses that it is put in.
"""

from __future__ import annotations

import re

from store_native.errors import from_code

_PIECE = re.compile(
    r"""
    [^'"()/;-] | (?P<text>'(?:[^']|'')*') | (?P<name>"(?:[^"]|"")*")
    | (?P<comment>--[^\n]* | /\*.*?\*/) | -(?!-) | /(?!\*) | (?P<open>\() | (?P<close>\))
    """,
    re.VERBOSE | re.DOTALL,
)
"""One piece of a condition: what is quoted or a comment is one piece, and no parenthesis."""

_DRAWN = re.compile(
    r"\b(random|rand|randn|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id"
    r"|input_file_name)\s*\(",
    re.IGNORECASE,
)
"""A call of a function that gives something else for each row and each time."""


def check_condition(predicate: str) -> None:
    """Refuses what is not one condition, or has another result each time.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    depth = at = 0
    bare = ""
    while depth >= 0 and (piece := _PIECE.match(predicate, at)):
        depth += bool(piece["open"]) - bool(piece["close"])
        at = piece.end()
        bare += _bare(piece)
    if depth != 0 or at != len(predicate) or not predicate.strip():
        raise from_code(
            "ARGUMENT_ILLEGAL", f"--where is one condition such as reason = 'timeout', not {predicate!r}"
        )
    if drawn := _DRAWN.search(bare):
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"--where has another result each time it is asked, with {drawn[1]}(): "
            "for one in ten take queue_offset % 10 = 0",
        )


def _bare(piece: re.Match[str]) -> str:
    """A piece without what it quotes; a quoted name stays one."""
    if piece["text"] is not None:
        return "''"
    if piece["comment"] is not None:
        return " "
    if piece["name"] is not None:
        return piece["name"].strip('"')
    return piece[0]
