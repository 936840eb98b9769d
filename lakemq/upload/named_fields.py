"""The fields of bodies that shall become keys and tags: a name that no body has is a mistake.

Owns which of them were seen, and when it is clear that one will not be.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from lakemq.terminal.failure import CommandFailed

LOOKED_AT = 1_000
"""A field that so many lines are without is no field of theirs; one that is seldom there is seen before."""
LOOKED_AT_BYTES = 64 << 20
"""So are so many bytes of messages: what waits for a field is in memory."""


class NamedFields:
    """What the lines of one input have of the fields that are named.

    Args:
        names: The fields.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._unseen = dict.fromkeys(names)
        self._others: dict[str, None] = {}
        self._lines = 0

    @property
    def are_seen(self) -> bool:
        """Whether each of them was in a line."""
        return not self._unseen

    def look(self, body: Any) -> None:
        """Looks at a line's body; None for a line that has its keys itself. Null is a value of a field."""
        self._lines += 1
        if self._unseen and isinstance(body, dict):
            for name in [name for name in self._unseen if name in body]:
                del self._unseen[name]
            self._others |= dict.fromkeys(body)

    def check(self, size: int, *, at_end: bool) -> None:
        """Refuses a field that was not seen in all lines, or in enough of them.

        Args:
            size: Bytes of the messages that were looked at.
            at_end: There are no more.

        Raises:
            CommandFailed: It names the field, and the one that was probably meant.
        """
        if not self._unseen or not self._lines:
            return
        if self._lines >= LOOKED_AT:
            lines = f"none of the first {self._lines:,} lines"
        elif at_end:
            lines = "no line"
        elif size >= LOOKED_AT_BYTES:
            lines = f"none of the lines in the first {LOOKED_AT_BYTES >> 20} MiB"
        else:
            return
        name = next(iter(self._unseen))
        near = difflib.get_close_matches(name, self._others, n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        if not self._others:
            guess = ": none is a JSON object"
        raise CommandFailed(f"{lines} has a field {name} in its body{guess}")
