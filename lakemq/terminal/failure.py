"""How a command says that it cannot go on.

Owns the exceptions that end a command and the one line in which an error is shown; cli/app.py has the exit
codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from store_native.errors import InvalidRequest, LakeMQError

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class CommandFailed(Exception):
    """The command could not do what it was asked; exit code 1. The text is for a person."""


class WrongUsage(Exception):
    """The arguments do not fit together in a way argparse cannot see; exit code 2."""


@contextmanager
def of_usage() -> Iterator[None]:
    """What is refused within is what was typed: nothing outside was asked.

    Raises:
        WrongUsage: In the place of InvalidRequest.
    """
    try:
        yield
    except InvalidRequest as error:
        raise WrongUsage(described(error)) from error


def described(error: Exception) -> str:
    """Returns an error as one line, with the place in the input it is about."""
    text = " ".join(_COLOUR.sub("", str(error)).split())
    if isinstance(error, LakeMQError):
        pointer = error.context.get("pointer")
        if pointer and str(pointer) not in text:
            text += f" (at {pointer})"
        if error.context.get("sent") is False:
            text += " (start a broker with lakemq serve, or name one with --endpoint)"
    return text


def is_of_delta(error: Exception) -> bool:
    """Says whether it comes from the engine that reads and writes Delta without Spark."""
    return type(error).__module__.partition(".")[0] in ("_internal", "deltalake")
