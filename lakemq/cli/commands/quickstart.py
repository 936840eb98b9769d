"""``lakemq quickstart``: runs the whole path once and proves the numbers; exit code 1 when one is off.

Owns the arguments; lakemq.quickstart does the work.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from types import FrameType

from lakemq.cli.subparsers import Subparsers
from lakemq.quickstart import run as quickstart
from lakemq.upload.ndjson import MEANINGS, LineRule


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "quickstart",
        help="run the whole path once, on real flights",
        description=(
            "Start a broker with a new store, post 336,776 real flights, consume them in Spark with retries"
            " and dead letters, and query the ledger for what happened."
        ),
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(".quickstart"),
        metavar="DIR",
        help="where to work (default: %(default)s)",
    )
    parser.add_argument("--keep-serving", action="store_true", help="leave the broker running until Ctrl-C")
    parser.add_argument(
        "--handler",
        metavar="MODULE:FUNCTION",
        help="what the group does with a batch (default: the flights' own)",
    )
    own = parser.add_argument_group("your own data instead of the flights")
    own.add_argument("--input", type=Path, metavar="FILE.ndjson", help="message objects or any JSON values")
    own.add_argument(
        "--as", dest="meaning", choices=MEANINGS, default="auto", help="what a line is (default: %(default)s)"
    )
    own.add_argument(
        "--key-field",
        action="append",
        default=[],
        metavar="FIELD",
        help="field to find it by (may be repeated)",
    )
    own.add_argument("--tag-field", metavar="FIELD", help="field that becomes the tag")


def run(args: argparse.Namespace) -> int:
    """Runs it; returns 1 when a number does not hold."""
    settings = quickstart.Settings(
        directory=args.dir,
        source=args.input,
        rule=LineRule(args.meaning, tuple(args.key_field), args.tag_field),
        handler=args.handler,
        keep_serving=args.keep_serving,
    )
    # The broker and Spark are children of this process: its end is theirs too.
    signal.signal(signal.SIGTERM, _end)
    return 1 if quickstart.run(settings).problems() else 0


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
