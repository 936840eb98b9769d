"""Options and argument types that several commands share.

Owns their names, so that ``--format`` and times mean the same everywhere.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakemq.argument_types import DURATION_HELP, duration_ms
from lakemq.argument_types import positive as positive
from lakemq.argument_types import whole as whole
from lakemq.duration import parse_ms
from lakemq.terminal.failure import CommandFailed, WrongUsage

if TYPE_CHECKING:
    from lakemq.client import Client

_EPOCH_MS = re.compile(r"\d{11,}")

_WATCH_EVERY_MS = 2_000

TIME_HELP = (
    "a time such as 2026-11-21T08:00 (UTC unless it names a zone), 1h (that long ago; ms, s, m, h or d), or "
    "epoch milliseconds"
)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds ``--format table|json``."""
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="how to print (default: %(default)s)"
    )


def add_attributes(parser: argparse.ArgumentParser, noun: str) -> None:
    """Adds ``--attribute NAME=VALUE`` of a topic or a group."""
    parser.add_argument(
        "--attribute",
        type=pair,
        action="append",
        metavar="NAME=VALUE",
        help=f"an attribute of the {noun} (may be repeated)",
    )


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Adds ``--watch [DURATION]``: None when it is not given, else milliseconds."""
    parser.epilog = DURATION_HELP
    parser.add_argument(
        "--watch",
        nargs="?",
        type=duration_ms,
        const=_WATCH_EVERY_MS,
        metavar="DURATION",
        help="show it again and again until Ctrl-C, so often (default: every 2s); as JSON one line each time",
    )


def rounds(args: argparse.Namespace) -> Iterator[None]:
    """Yields once, or with ``--watch`` again and again."""
    yield
    while args.watch is not None:
        time.sleep(args.watch / 1000)
        if args.format != "json":
            print("\n----\n", flush=True)
        yield


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Adds ``--yes``."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def connect(args: argparse.Namespace, *, pool_size: int = 16, compression: str = "none") -> Client:
    """Builds the client of a command from its ``--endpoint``."""
    from lakemq.client import Client  # commands that ask no broker do not pay for it

    return Client(args.endpoint, pool_size=pool_size, compression=compression)


def confirm(args: argparse.Namespace, question: str) -> None:
    """Asks before something that cannot be undone.

    Raises:
        CommandFailed: The answer was not yes.
        WrongUsage: Nobody is there to answer and ``--yes`` was not given.
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise WrongUsage(f"{question} Say --yes, there is no terminal to ask at.")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was changed")


def time_ms(text: str) -> int:
    """Reads a time as epoch milliseconds (an argparse type).

    >>> time_ms("2026-11-21T00:00:00Z")
    1795219200000
    """
    return parse_time(text, int(time.time() * 1000))


def parse_time(text: str, now_ms: int) -> int:
    """Reads epoch milliseconds, an age such as ``10m``, or an ISO 8601 date or time.

    An age has its unit: a number alone is no age.

    Raises:
        argparse.ArgumentTypeError: It is none of these.
    """
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    with suppress(ValueError):
        return now_ms - parse_ms(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {TIME_HELP}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def place(text: str) -> str | int:
    """Reads ``earliest``, ``latest`` or a time (an argparse type)."""
    return text if text in ("earliest", "latest") else time_ms(text)


def pair(text: str) -> tuple[str, str]:
    """Reads ``name=value`` (an argparse type)."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
