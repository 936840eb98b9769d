"""What reaches a person's terminal: text, and nothing that steers it.

Owns the one place where control characters are taken out.

Invariants: no byte of a message, a key, a property or an attribute is obeyed by a terminal; into a pipe or
a file everything goes as it is.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO, cast

_LAYOUT = frozenset("\n\t")
_LINE_ENDS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
"""As str.splitlines() has them."""


class Terminal:
    """A standard stream that shows control characters instead of sending them; the rest is the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes text; returns how many of its characters were taken, all."""
        self.stream.write(shown(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard() -> None:
    """Puts a Terminal before standard output, and before standard error, when a person sits there."""
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout = cast(TextIO, Terminal(sys.stdout))
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr = cast(TextIO, Terminal(sys.stderr))


def drawing() -> TextIO:
    """Returns standard error as it is, for what moves about the screen itself and shows no foreign text."""
    stream = sys.stderr
    return stream.stream if isinstance(stream, Terminal) else stream


def shown(text: str) -> str:
    r"""Writes what is not printable as escapes, line breaks and tabs of the layout aside.

    >>> shown("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c in _LAYOUT or c.isprintable() else _escape(c) for c in text)


def one_line(text: str) -> str:
    r"""Writes what would end the line as escapes, and nothing else.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return "".join(c if c not in _LINE_ENDS else c.encode("unicode_escape").decode("ascii") for c in text)


def _escape(character: str) -> str:
    # From 7F on as JSON writes it too, so that JSON on a terminal stays JSON.
    code = ord(character)
    return f"\\u{code:04x}" if 0x7F <= code <= 0xFFFF else character.encode("unicode_escape").decode("ascii")
