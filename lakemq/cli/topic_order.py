"""The list of brokers of an ordered topic, at the terminal.

Owns the arguments of ``lakemq topic order``, and how a change is shown; client/order_change.py works it out.

Invariants: nothing is changed without ``--execute``.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from dataclasses import asdict

from lakemq.argument_types import between
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb
from lakemq.client import Client, OrderChange
from lakemq.terminal import output
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
    order.add_argument("--execute", action="store_true", help="do it")


def missing_brokers(client: Client, topic: str, known: Collection[str]) -> list[str]:
    """Says which brokers of an ordered topic's list are not among those that are known to hold it.

    Args:
        client: Of several brokers.
        topic: The topic.
        known: Their names.
    """
    conf = client.cluster_routes.routes.known_order_conf(topic)
    named = [] if conf is None else sorted(conf.write_queue_nums.keys() - known)
    return [
        f"broker {name} is away: the list of topic {topic} names it, and no route to the topic does"
        for name in named
    ]


def missing_of(client: Client, topics: Iterable[str], known: Collection[str]) -> list[str]:
    """As :func:`missing_brokers`, of several topics, which are asked for; each broker is named once."""
    found: dict[str, str] = {}
    for topic in topics:
        client.cluster_routes.routes.holders(topic)
        for what in missing_brokers(client, topic, {*known, *found}):
            found[what.split()[1]] = what
    return list(found.values())


def _order(client: Client, args: argparse.Namespace) -> int:
    client.topic(args.topic)
    change = client.order_topic(args.topic, args.brokers, queues=args.queues, dry_run=not args.execute)
    if args.format == "json":
        print(output.as_json(asdict(change)))
    else:
        _print(change)
    return 1 if change.lacking and (change.is_done or change.order_conf == change.before) else 0


def _print(change: OrderChange) -> None:
    columns = ["broker_name", "queues_before", "queues_after", "state"]
    rows = [[getattr(broker, name) for name in columns] for broker in change.brokers]
    print(output.table(columns, rows, widest=output.WHOLE_NAMES))
    if change.moved:
        what = "moved" if change.is_done else "would move"
        print(
            f"about {change.moved:.0%} of sharding keys {what} to another queue: their order holds over that "
            "only where what is in the old queues is handled before more is sent (stop the producers, wait "
            "until `lakemq group offsets` shows no lag, then change the list)"
        )
    elif change.before is None:
        print("no sharding key moves, as far as all clients know the same brokers now")
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
