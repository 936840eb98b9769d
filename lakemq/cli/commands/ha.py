"""``lakemq ha``: what brokers are to the others of their name, and promoting a slave, over the HTTP API.

Owns the arguments and how one broker's role, offsets and slaves are shown; cluster_members.py has several.

Invariants: nothing is promoted unasked: by an answer at the terminal, or ``--yes``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from lakemq.cli import cluster_members, options
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client
from lakemq.terminal import output
from lakemq.terminal.failure import WrongUsage

SLAVE_COLUMNS = ("broker_id", "acked", "lag_bytes", "lag_s", "bytes_per_s", "silent_s")
"""What a master says of each slave that follows it."""


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("ha", help="show a broker's replication; promote a slave")
    verbs = parser.add_subparsers(dest="verb", required=True)
    status = add_broker_verb(
        verbs,
        "status",
        _status,
        "show a broker's role, epoch, offsets and slaves; at a name server's address, or several, those of "
        "all brokers, masters and slaves. Ends with 1 when one does not answer.",
    )
    options.add_watch(status)
    promote = add_broker_verb(
        verbs,
        "promote",
        _promote,
        "make a slave the master of a new epoch. The old master must be gone (it is asked, for a second); "
        "what it has beyond the slave's log does not count. It comes back as a slave: lakemq serve "
        "--role slave --master URL",
    )
    promote.add_argument(
        "--role",
        choices=["async-master", "sync-master"],
        default="async-master",
        help="what it becomes (default: %(default)s)",
    )
    promote.add_argument(
        "--force",
        action="store_true",
        help="also where this slave lacks what its master had confirmed, or is empty, or its master answers: "
        "what only the master has is lost then",
    )
    options.add_yes(promote)


def _status(client: Client, args: argparse.Namespace) -> int:
    if client.is_cluster():
        return _status_of_several(client, args)
    before: tuple[float, int] | None = None
    for _ in options.rounds(args):
        status = client.replication()
        now = (time.monotonic(), int(status["appended"]))
        _print(status, before, now, args)
        before = now
    return 0


def _status_of_several(client: Client, args: argparse.Namespace) -> int:
    silent = False
    for _ in options.rounds(args):
        members = cluster_members.members_of(client)
        silent = any(member.status is None for member in members)
        if args.format == "json":
            said = [member.as_object() for member in members]
            print(output.as_json(said, indent=_indent(args)), flush=True)
        else:
            print(cluster_members.table(members), flush=True)
    return 1 if silent else 0


def _indent(args: argparse.Namespace) -> int | None:
    return 2 if args.watch is None else None


def _print(
    status: dict[str, Any], before: tuple[float, int] | None, now: tuple[float, int], args: argparse.Namespace
) -> None:
    if args.format == "json":
        print(output.as_json(status, indent=_indent(args)), flush=True)
        return
    rate = (
        "" if before is None else f", {(now[1] - before[1]) / max(now[0] - before[0], 1e-3) / 1e6:.1f} MB/s"
    )
    print(
        f"{status['broker_name']} of {status['cluster']}, id {status['broker_id']}: {status['role']}, "
        f"epoch {status['epoch']}{rate}{_parted(status)}"
    )
    if status.get("read_only") is not None:
        print(f"TAKES NO MORE MESSAGES: {status['read_only']}")
    print(
        f"log [{status['first_offset']}, {status['appended']}), flushed to {status['flushed']}, "
        f"confirmed to {status['confirmed']}"
    )
    if status["role"] == "slave":
        print(f"master {status['master'] or 'unknown'}: {_following(status)}")
    elif status["ha_port"] is None:
        print("takes no slaves: it runs without --ha-port")
    else:
        reach = "" if status["in_reach"] else ", NOT ENOUGH SLAVES IN REACH"
        print(f"takes slaves on port {status['ha_port']}, needs {status['min_in_sync']}{reach}")
        rows = [[slave.get(name) for name in SLAVE_COLUMNS] for slave in status["slaves"]]
        print(output.table(SLAVE_COLUMNS, rows))


def _parted(status: dict[str, Any]) -> str:
    why = status.get("log_parted")
    return "" if why is None else f", NOT READ IN ITS MASTER'S PLACE: {why}"


def _following(status: dict[str, Any]) -> str:
    if not status["following"]:
        return f"does not follow: {status['failure'] or 'not tried yet'}"
    lacks = status.get("lag_bytes")
    return "follows" if lacks is None else f"follows, lacks {lacks} bytes of what it heard of"


def _promote(client: Client, args: argparse.Namespace) -> None:
    if client.is_cluster():
        slaves = [
            f"{member.endpoint} ({member.broker_name} id {(member.status or {}).get('broker_id')})"
            for member in cluster_members.members_of(client)
            if member.is_slave
        ]
        there = f"one of {', '.join(slaves)}" if slaves else "no slave answers now"
        raise WrongUsage(f"a slave is promoted at its own address, --endpoint SLAVE: {there}")
    status = client.replication()
    options.confirm(
        args,
        f"Promote {status['broker_name']} id {status['broker_id']}, whose log ends at {status['appended']} "
        f"(master {status['master'] or 'unknown'}: {_following(status)})? What its master has beyond that "
        "will not count.",
    )
    promoted = client.promote(args.role, force=args.force)
    if args.format == "json":
        print(output.as_json(promoted))
    else:
        who = f"{status['broker_name']} id {status['broker_id']}"
        print(f"{who} is {promoted['role']} of epoch {promoted['epoch']}")
        if "begins_at" in promoted:  # an older broker does not say
            print(missing(promoted))


def missing(promoted: dict[str, Any]) -> str:
    """Says in words what a broker answers about the messages that it lacks as the master."""
    begins_at, master_end = promoted["begins_at"], promoted["master_end"]
    if master_end is None:
        heard = "it has heard of no master since its start, and cannot say what is missing"
    else:
        lacks = promoted["lacks_bytes"]
        heard = f"the log of its master went to {master_end} at least when it was heard last, "
        heard += f"{promoted['silent_s']:.1f} s before: "
        heard += (
            f"{lacks} bytes of that are missing, and all that it took later"
            if lacks
            else "all of that is here, but nothing that it took later"
        )
    return f"its log ends at {begins_at}; {heard}"
