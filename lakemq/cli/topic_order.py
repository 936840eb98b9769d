"""The list of brokers of an ordered topic, at the terminal.

Owns the arguments of ``lakemq topic order``, and how a change is shown; client/order_change.py works it out.

Invariants: nothing is changed without ``--execute``; of a change that moves sharding keys it is said what
groups have not consumed yet.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lakemq.argument_types import DURATION_HELP, between, duration_ms
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.unconsumed import Unconsumed, in_words, unconsumed, wait_consumed
from lakemq.cli.verbs import add_broker_verb
from lakemq.client import Client, OrderChange
from lakemq.terminal import output
from lakemq.terminal.failure import WrongUsage
from store_native.order_conf import MOST_QUEUES

_FORM = "names with commas between them, each with :N for N write queues of its own"


def add_options(create: argparse.ArgumentParser) -> None:
    """Adds the options of a topic that is made as an ordered one."""
    create.add_argument(
        "--ordered",
        action="store_true",
        help="keep the list of its brokers with it: a sharding key's messages fail while its broker is away, "
        "and never go to another",
    )
    create.add_argument(
        "--brokers",
        type=_brokers,
        metavar="NAMES",
        help=f"of an ordered topic: {_FORM} (default: all that are known)",
    )


def add_verb(verbs: Subparsers) -> None:
    """Adds ``lakemq topic order``."""
    order = add_broker_verb(
        verbs,
        "order",
        _order,
        "show or change the list of brokers of an ordered topic, or order one that is not. Shows what would "
        "change unless --execute is given. Ends with 1 when a broker does not have the list.",
    )
    order.add_argument("topic", help="the topic")
    order.add_argument(
        "--brokers",
        type=_brokers,
        metavar="NAMES",
        help=f"{_FORM} (default: the list it has, else the brokers that have the topic)",
    )
    order.add_argument(
        "--queues",
        type=between(1, MOST_QUEUES),
        metavar="N",
        help=f"write queues of each that is named without :N, 1 to {MOST_QUEUES} (default: what it has, else "
        "what others have)",
    )
    order.add_argument(
        "--wait",
        type=duration_ms,
        metavar="DURATION",
        help="with --execute, where sharding keys move: first wait, so long at most, until no group has "
        "messages of the topic to consume (stop the producers before); else nothing is changed",
    )
    order.add_argument("--execute", action="store_true", help="do it")
    order.epilog = DURATION_HELP


def _order(client: Client, args: argparse.Namespace) -> int:
    check_queues(args.brokers, args.queues)
    client.topic(args.topic)
    change = client.order_topic(args.topic, args.brokers, queues=args.queues, dry_run=True)
    waiting: list[Unconsumed] = []
    if change.moved:
        waiting = unconsumed(client, args.topic)
        if args.execute and args.wait is not None:
            waiting = wait_consumed(client, args.topic, args.wait / 1000)
    if args.execute:
        change = client.order_topic(args.topic, args.brokers, queues=args.queues)
    if args.format == "json":
        print(output.as_json({**asdict(change), "unconsumed": [asdict(one) for one in waiting]}))
    else:
        _print(change, waiting)
    return 1 if change.lacking and (change.is_done or _is_list_of_before(change)) else 0


def check_queues(brokers: dict[str, int] | list[str] | None, write_queue_nums: int | None) -> None:
    """Refuses a number of write queues beside a list that has other ones.

    Args:
        brokers: As ``--brokers`` was read.
        write_queue_nums: Those of each broker that is named without a number; None: it was not given.

    Raises:
        WrongUsage: They contradict each other.
    """
    nums = brokers if isinstance(brokers, dict) else {}
    others = [f"{name}:{own}" for name, own in nums.items() if write_queue_nums not in (None, own)]
    if others:
        raise WrongUsage(
            f"--brokers says {', '.join(others)}, and --queues or --write-queues {write_queue_nums}: give one"
        )


def _is_list_of_before(change: OrderChange) -> bool:
    """Whether the list names what it did, also where a new version is to end a conflict."""
    return change.before is not None and change.before.brokers == change.order_conf.brokers


def _print(change: OrderChange, waiting: list[Unconsumed]) -> None:
    columns = ["broker_name", "queues_before", "queues_after", "state"]
    rows = [[getattr(broker, name) for name in columns] for broker in change.brokers]
    print(output.table(columns, rows, widest=output.WHOLE_NAMES))
    if change.moved:
        what = "moved" if change.is_done else "would move"
        print(
            f"about {change.moved:.0%} of sharding keys {what} to another queue: their order holds over that "
            "only where what is in the old queues is handled before more is sent (stop the producers, wait "
            "until no group has messages to consume, then change the list: --wait does that)"
        )
        print(f"before this change: {in_words(waiting) or 'no group has messages of it to consume'}")
    elif change.before is None:
        print("no sharding key moves, as far as all clients know the same brokers now")
    if not change.is_done and change.order_conf != change.before and _is_list_of_before(change):
        print("brokers have other lists of the same version: --execute gives all of them this one")
    if lacking := change.is_done and ", ".join(change.lacking):
        print(
            f"without this list: {lacking}. What is there does not count; give this list "
            "again when it is back"
        )
    if not change.is_done and (change.lacking or change.order_conf != change.before):
        print("nothing was changed; --execute does it")


def _brokers(text: str) -> dict[str, int] | list[str]:
    """Reads ``a,b`` or ``a:4,b:8`` (an argparse type)."""
    found: dict[str, int] = {}
    names: list[str] = []
    for entry in text.split(","):
        name, colon, nums = entry.strip().partition(":")
        if not name or name in names:
            raise argparse.ArgumentTypeError(f"{text!r}: {entry!r} is no name, or is named twice")
        names.append(name)
        if colon:
            found[name] = between(1, MOST_QUEUES)(nums)
    if found and len(found) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r}: give each broker a number of queues, or none")
    return found or names
