"""``lakemq topic``: list, create, show, update and delete topics over the HTTP API.

Owns the arguments, the letters for permission bits, and how topics are shown; topic_order.py has the list of
brokers of an ordered one.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from lakemq.argument_types import between
from lakemq.cli import options, topic_order
from lakemq.cli.missing_brokers import missing_of
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client, InvalidRequest, LakeMQError, QueueBounds, TopicConfig, Unavailable
from lakemq.client.errors import may_pass
from lakemq.terminal import output
from store_native.names import PERM_READ, PERM_READ_WRITE, PERM_WRITE, is_group_topic

MOST_QUEUES = 1_024
"""A broker takes no more."""
_PERMS = {"rw": PERM_READ_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("topic", help="list, create, show, update, order, delete topics")
    verbs = parser.add_subparsers(dest="verb", required=True)

    listing = add_broker_verb(verbs, "list", _list, "list topics")
    listing.add_argument("--all", action="store_true", help="the system's and the groups' own topics too")
    for name, action, text in (
        ("create", _create, "create a topic"),
        ("update", _update, "change a topic"),
    ):
        verb = add_broker_verb(verbs, name, action, text)
        of = "default: the broker's, 4" if name == "create" else "default: as it is"
        verb.add_argument("topic", help="the topic")
        for option, what in (
            ("--queues", "read and write queues"),
            ("--read-queues", "queues that are read, in place of --queues"),
            ("--write-queues", "queues that take messages, in place of --queues"),
        ):
            verb.add_argument(
                option, type=between(1, MOST_QUEUES), metavar="N", help=f"{what}, 1 to {MOST_QUEUES} ({of})"
            )
        perm = "default: rw" if name == "create" else "default: as it is"
        verb.add_argument(
            "--perm", choices=sorted(_PERMS), help=f"what may be done: r(ead), w(rite) ({perm})"
        )
        options.add_attributes(verb, "topic")
        if name == "create":
            topic_order.add_options(verb)
        if name == "update":
            verb.add_argument("--force", action="store_true", help="even if it strands messages")
    topic_order.add_verb(verbs)
    show = add_broker_verb(
        verbs, "show", _show, "show a topic and its queues. Ends with 1 when a broker is left out."
    )
    show.add_argument("topic", help="the topic")
    delete = add_broker_verb(verbs, "delete", _delete, "delete a topic")
    delete.add_argument("topic", help="the topic")
    options.add_yes(delete)


def _list(client: Client, args: argparse.Namespace) -> None:
    topics = [topic for topic in client.topics() if args.all or not _is_hidden(topic)]
    if args.format == "json":
        print(output.as_json([asdict(topic) for topic in topics]))
        return
    columns = ["topic", "read_queue_nums", "write_queue_nums", "perm", "attributes"]
    rows = [[t.topic, t.read_queue_nums, t.write_queue_nums, perm_text(t.perm), t.attributes] for t in topics]
    print(output.table(columns, rows, widest=output.WHOLE_NAMES))


def _is_hidden(topic: TopicConfig) -> bool:
    """Whether nobody made the topic by name: the system's, and the retry and dead-letter topics of groups."""
    return topic.system or is_group_topic(topic.topic)


def _create(client: Client, args: argparse.Namespace) -> None:
    # PUT creates or changes; a person who says create wants to hear that it is there already.
    if _is_known(client, args.topic):
        lacking = [name for name, broker in _brokers(client).items() if not _exists(broker, args.topic)]
        what = (
            f"changes it, and makes it at {', '.join(lacking)}, where it is not" if lacking else "changes it"
        )
        raise InvalidRequest("TOPIC_CONFLICT", f"topic {args.topic} exists; lakemq topic update {what}")
    changes = _changes(args)
    if args.brokers and not args.ordered:
        what = "--brokers is the list of an ordered topic: give --ordered too; another is made on all brokers"
        raise InvalidRequest("ARGUMENT_ILLEGAL", what)
    if args.ordered:
        write_queue_nums = changes.pop("write_queue_nums")
        topic_order.check_queues(args.brokers, write_queue_nums)
        before = client.order_topic(args.topic, args.brokers, queues=write_queue_nums, dry_run=True).before
        if before is not None:
            what = f"topic {args.topic} is ordered over {before}, of which none answers"
            raise InvalidRequest(
                "TOPIC_CONFLICT", f"{what}; lakemq topic order {args.topic} changes the list"
            )
        client.order_topic(args.topic, args.brokers, queues=write_queue_nums, **changes)
        _print(client, client.topic(args.topic), args)
        return
    _print(client, client.put_topic(args.topic, **changes), args)


def _brokers(client: Client) -> dict[str, Client]:
    return client.brokers() if client.is_routed else {}


def _is_known(client: Client, topic: str) -> bool:
    """Says whether a broker that answers has it; who is away is named when the others make it."""
    try:
        return _exists(client, topic)
    except LakeMQError as error:
        if not (client.is_routed and may_pass(error)):
            raise
        return False


def _exists(client: Client, topic: str) -> bool:
    try:
        client.topic(topic)
    except InvalidRequest as error:
        if error.code != "TOPIC_NOT_EXIST":
            raise
        return False
    return True


def _update(client: Client, args: argparse.Namespace) -> None:
    client.topic(args.topic)
    _print(client, client.put_topic(args.topic, force=args.force, **_changes(args)), args)


def _show(client: Client, args: argparse.Namespace) -> int:
    return 1 if _print(client, client.topic(args.topic), args) else 0


def _delete(client: Client, args: argparse.Namespace) -> None:
    config = client.topic(args.topic)
    options.confirm(args, f"Delete topic {config.topic}? Its messages can no longer be read.")
    client.delete_topic(args.topic)
    if args.format == "json":
        print(output.as_json({"topic": args.topic, "deleted": True}))
    else:
        print(f"topic {args.topic} is deleted")


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "read_queue_nums": args.read_queues or args.queues,
        "write_queue_nums": args.write_queues or args.queues,
        "perm": None if args.perm is None else _PERMS[args.perm],
        "attributes": dict(args.attribute) if args.attribute else None,
    }


def _print(client: Client, topic: TopicConfig, args: argparse.Namespace) -> int:
    """Shows a topic; returns how many brokers were left out."""
    queues, left_out = _queue_rows(client, topic.topic)
    if args.format == "json":
        print(output.as_json({**asdict(topic), "queues": queues}))
        return left_out
    print(output.fields({**asdict(topic), "perm": perm_text(topic.perm)}))
    print()
    columns = ["broker_name"] if client.is_routed else []
    columns += ["queue_id", "min_offset", "max_offset", "messages"]
    rows = [{**queue, "messages": queue["max_offset"] - queue["min_offset"]} for queue in queues]
    print(output.table(columns, [[row[name] for name in columns] for row in rows]))
    return left_out


def _queue_rows(client: Client, topic: str) -> tuple[list[dict[str, Any]], int]:
    """A topic's queues as rows, with their broker's name where there are several, and how many were left out.

    A broker that is away is named on standard error and left out, also one that only the list of an ordered
    topic has.
    """
    if not client.is_routed:
        return [_row(queue) for queue in client.queues(topic)], 0
    rows = []
    brokers = client.brokers()
    left_out: list[object] = []
    for name, broker in brokers.items():
        try:
            rows += [{"broker_name": name, **_row(queue)} for queue in broker.queues(topic)]
        except Unavailable as error:
            left_out.append(error)
        except InvalidRequest as error:
            if error.code != "TOPIC_NOT_EXIST":
                raise
    left_out += missing_of(client, [topic], brokers)
    for what in left_out:
        print(f"lakemq: left out: {what}", file=sys.stderr)
    return rows, len(left_out)


def _row(queue: QueueBounds) -> dict[str, Any]:
    names = ("queue_id", "min_offset", "max_offset", "confirmed_offset")
    return {name: getattr(queue, name) for name in names}


def perm_text(perm: int) -> str:
    """Writes permission bits as ``rw``, ``r``, ``w`` or ``none``."""
    return ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "") or "none"
