"""``lakemq ha``: what a broker is to the others of its name, and promoting a slave, over the HTTP API.

Owns the arguments and how roles, offsets and slaves are shown.

Invariants: nothing is promoted unasked: by an answer at the terminal, or ``--yes``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from lakemq.cli import options
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client
from lakemq.terminal import output

_WATCH_EVERY_S = 1.0


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("ha", help="show a broker's replication; promote a slave")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    status = add_broker_verb(verbs, "status", _status, "show roles, epochs, offsets and slaves")
    status.add_argument("--watch", action="store_true", help="show it again every second, until Ctrl-C")
    promote = add_broker_verb(
        verbs,
        "promote",
        _promote,
        "make a slave the master of a new epoch. The old master must be gone; what it has beyond the slave's "
        "log does not count. It comes back as a slave: lakemq serve --role slave --master URL",
    )
    promote.add_argument(
        "--role",
        choices=["async-master", "sync-master"],
        default="async-master",
        help="what it becomes (default: async-master)",
    )
    promote.add_argument(
        "--force",
        action="store_true",
        help="also where this slave lacks what its master had confirmed, or is empty: that is lost then",
    )
    options.add_yes(promote)


def _status(client: Client, args: argparse.Namespace) -> None:
    before: tuple[float, int] | None = None
    while True:
        status = client.replication()
        now = (time.monotonic(), int(status["appended"]))
        _print(status, before, now, args)
        if not args.watch:
            return
        before = now
        time.sleep(_WATCH_EVERY_S)


def _print(
    status: dict[str, Any], before: tuple[float, int] | None, now: tuple[float, int], args: argparse.Namespace
) -> None:
    if args.format == "json":
        print(output.as_json(status), flush=True)
        return
    rate = (
        "" if before is None else f", {(now[1] - before[1]) / max(now[0] - before[0], 1e-3) / 1e6:.1f} MB/s"
    )
    print(
        f"{status['broker_name']} of {status['cluster']}, id {status['broker_id']}: {status['role']}, "
        f"epoch {status['epoch']}{rate}"
    )
    print(
        f"log [{status['first_offset']}, {status['appended']}), flushed to {status['flushed']}, "
        f"confirmed to {status['confirmed']}"
    )
    if status["role"] == "slave":
        state = (
            "follows" if status["following"] else f"does not follow: {status['failure'] or 'not tried yet'}"
        )
        print(f"master {status['master'] or 'unknown'}: {state}")
    elif status["ha_port"] is None:
        print("takes no slaves: it runs without --ha-port")
    else:
        reach = "" if status["in_reach"] else ", NOT ENOUGH SLAVES IN REACH"
        print(f"takes slaves on port {status['ha_port']}, needs {status['min_in_sync']}{reach}")
        columns = ["broker_id", "acked", "lag_bytes", "silent_s"]
        print(output.table(columns, [[slave[name] for name in columns] for slave in status["slaves"]]))


def _promote(client: Client, args: argparse.Namespace) -> None:
    status = client.replication()
    options.confirm(
        args,
        f"Promote {status['broker_name']} id {status['broker_id']}, whose log ends at {status['appended']}? "
        "What its master has beyond that will not count.",
    )
    promoted = client.promote(args.role, force=args.force)
    if args.format == "json":
        print(output.as_json(promoted))
    else:
        who = f"{status['broker_name']} id {status['broker_id']}"
        print(f"{who} is {promoted['role']} of epoch {promoted['epoch']}")
