"""``lakemq store``: looks at a store's files without a broker; recover puts them in order.

Owns how the native module's findings are printed. ``verify`` and ``dump`` only read and may run
beside the broker; ``recover`` takes the store's lock, so the broker must be stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lakemq.cli import options, verbs
from lakemq.cli.subparsers import Subparsers
from lakemq.terminal import output
from lakemq.terminal.failure import CommandFailed


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("store", help="verify, dump or recover a store's files")
    names = parser.add_subparsers(dest="verb", required=True)
    verify = verbs.add_verb(
        names, "verify", _verify, "check every record; exit code 1 when something is damaged"
    )
    options.add_format(verify)
    dump = verbs.add_verb(names, "dump", _dump, "print one JSON object per record of the commit log")
    dump.add_argument(
        "--from-offset",
        type=options.whole,
        default=0,
        metavar="BYTE",
        help="physical offset to start at (default: %(default)s)",
    )
    dump.add_argument(
        "--limit", type=options.positive, metavar="N", help="at most so many records (default: all)"
    )
    recover = verbs.add_verb(names, "recover", _recover, "recover the store and rebuild its queues and index")
    options.add_format(recover)
    for verb in (verify, dump, recover):
        verb.add_argument("dir", metavar="DIR", help="the store's directory")


def run(args: argparse.Namespace) -> int:
    """Runs the verb; returns the exit code."""
    if not Path(args.dir).is_dir():
        raise CommandFailed(f"{args.dir}: there is no such directory")
    return verbs.run(args)


def _verify(args: argparse.Namespace) -> int:
    from store_native import verify

    found: Mapping[str, Any] = verify(args.dir)
    _print(args, found)
    return 0 if found["ok"] else 1


def _dump(args: argparse.Namespace) -> int:
    from store_native import dump

    for record in dump(args.dir, from_offset=args.from_offset, limit=args.limit):
        sys.stdout.write(record.decode("utf-8") + "\n")
    return 0


def _recover(args: argparse.Namespace) -> int:
    from store_native import recover

    _print(args, recover(args.dir))
    return 0


def _print(args: argparse.Namespace, found: Mapping[str, Any]) -> None:
    print(output.as_json(found) if args.format == "json" else output.fields(found))
