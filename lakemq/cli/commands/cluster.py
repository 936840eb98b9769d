"""``lakemq cluster up``: a name server, masters and slaves on this machine, for trying.

Owns the options, and what is said of the processes; lakemq.local_cluster starts them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path

from lakemq.argument_types import between
from lakemq.cli.master_changes import MasterChanges
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_verb
from lakemq.cli.verbs import run as run
from lakemq.local_cluster import MOST_MASTERS, MOST_SLAVES, LocalCluster
from lakemq.terminal import output
from lakemq.terminal.failure import WrongUsage
from store_native.errors import Unavailable
from store_native.places import why_no_directory

_LOOK_EVERY_S = 1.0


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("cluster", help="run a cluster on this machine, for trying")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = add_verb(
        verbs,
        "up",
        _up,
        "start a name server, masters and slaves on this machine, until Ctrl-C or SIGTERM; started again in "
        "the same directory they have their messages",
    )
    up.add_argument(
        "--masters",
        type=between(1, MOST_MASTERS),
        default=2,
        metavar="N",
        help=f"masters, 1 to {MOST_MASTERS} (default: %(default)s)",
    )
    up.add_argument(
        "--slaves",
        type=between(0, MOST_SLAVES),
        default=1,
        metavar="N",
        help=f"slaves of each master, 0 to {MOST_SLAVES} (default: %(default)s)",
    )
    up.add_argument("--sync", action="store_true", help="masters acknowledge what a slave has")
    up.add_argument(
        "--directory",
        type=Path,
        default=Path("cluster"),
        metavar="DIR",
        help="stores and logs (default: %(default)s)",
    )
    up.add_argument(
        "--port",
        type=between(0, 65_535),
        default=9876,
        metavar="PORT",
        help="the name server's, 0 for a free one (default: %(default)s)",
    )


def _up(args: argparse.Namespace) -> int:
    if args.sync and not args.slaves:
        raise WrongUsage("--sync needs slaves: what none has is not acknowledged")
    if why := why_no_directory(args.directory):
        raise WrongUsage(f"--directory: {why}")
    stop = threading.Event()
    home = args.directory.absolute()
    cluster = LocalCluster(home, args.masters, args.slaves, sync=args.sync, port=args.port)

    def end(*_: object) -> None:
        stop.set()
        cluster.give_up()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        with cluster:
            return _watch(cluster, stop, home)
    except Unavailable:
        if not stop.is_set():
            raise
        return 0


def _watch(cluster: LocalCluster, stop: threading.Event, home: Path) -> int:
    rows = [[member.name, member.role, member.endpoint] for member in cluster.members]
    print(output.table(["name", "role", "endpoint"], rows))
    print(f"\nlakemq ha status --endpoint {cluster.endpoint} shows who is master, and who follows")
    print(f"ready: --endpoint {cluster.endpoint}; stores and logs are in {home}", flush=True)
    if others := cluster.left_out():
        what = f"{home} has messages of {', '.join(others)} too, which --masters and --slaves leave out"
        print(f"lakemq: {what}", file=sys.stderr)
    said: set[str] = set()
    with closing(MasterChanges(cluster)) as masters:
        while not stop.wait(_LOOK_EVERY_S):
            for member in cluster.ended():
                if member.name not in said:
                    said.add(member.name)
                    what = f"{member.name} has ended; its log is {member.process.log}{masters.advice(member)}"
                    print(f"lakemq: {what}", file=sys.stderr)
            for change in masters.news():
                print(change, flush=True)
    return 1 if said else 0
