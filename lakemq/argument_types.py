"""Arguments of commands and jobs as argparse reads them: durations and numbers within bounds.

Owns the words of their refusals; argparse puts the option's name in front.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from lakemq.duration import MAX_MS, format_ms, parse_ms

DURATION_HELP = "A DURATION is a number and its unit: 500ms, 10s, 1.5m, 1h, 7d. A number alone is seconds."

_MEMORY = re.compile(r"([1-9][0-9]{0,9})([kmgt])", re.IGNORECASE)
_MEMORY_UNIT = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LEAST_MEMORY = 512 << 20
"""Spark does not start with less than 450 MiB of heap."""
_LEAST_OF_A_PROCESS = 128 << 20


def duration_ms(text: str) -> int:
    """Reads a duration longer than none; a number without a unit is seconds.

    >>> duration_ms("2m"), duration_ms("10")
    (120000, 10000)
    """
    return lasting(1, MAX_MS)(text)


def lasting(least_ms: int, most_ms: int) -> Callable[[str], int]:
    """Makes the reader of a duration within bounds."""

    def read(text: str) -> int:
        try:
            given = parse_ms(text, bare="s")
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if given < least_ms:
            raise argparse.ArgumentTypeError(f"{text!r} is too short: {format_ms(least_ms)} is the least")
        if given > most_ms:
            raise argparse.ArgumentTypeError(f"{text!r} is too long: {format_ms(most_ms)} is the most")
        return given

    return read


def between(least: int, most: int) -> Callable[[str], int]:
    """Makes the reader of a whole number within bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def positive(text: str) -> int:
    """Reads a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def whole(text: str) -> int:
    """Reads a whole number, 0 included."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def memory_bytes(text: str) -> int:
    """Reads what a handler's process may have in memory; with Python and Arrow it has most of 128m."""
    found = _MEMORY.fullmatch(text)
    size = 0 if found is None else int(found[1]) * _MEMORY_UNIT[found[2].lower()]
    if size < _LEAST_OF_A_PROCESS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 2g or 512m, 128m at the least")
    return size


def memory(text: str) -> str:
    """Reads the size of a JVM's heap, and returns it as it was written."""
    found = _MEMORY.fullmatch(text)
    if found is None or int(found[1]) * _MEMORY_UNIT[found[2].lower()] < _LEAST_MEMORY:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 2g or 1500m, 512m at the least")
    return text
