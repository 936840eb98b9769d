"""``lakemq message``: show one message by id, or find messages by key, over the HTTP API.

Owns the arguments and how messages are shown.
"""

from __future__ import annotations

import argparse

from lakemq.cli import options
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client
from lakemq.terminal import output


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("message", help="show one message, or find messages by key")
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = add_broker_verb(verbs, "show", _show, "show one message by its message id or offset id")
    show.add_argument("message_id", metavar="ID", help="either id of the message")
    show.add_argument("--topic", help="where to look (default: in all topics)")
    find = add_broker_verb(verbs, "find", _find, "find messages of a topic by one of their keys")
    find.add_argument("--topic", required=True, help="the topic")
    find.add_argument("--key", required=True, help="one of the messages' keys, whole")
    find.add_argument(
        "--begin",
        type=options.time_ms,
        metavar="TIME",
        help=f"stored since {options.TIME_HELP} (default: the oldest)",
    )
    find.add_argument(
        "--end",
        type=options.time_ms,
        metavar="TIME",
        help=f"stored until {options.TIME_HELP} (default: the newest)",
    )
    find.add_argument(
        "--max",
        type=options.positive,
        default=32,
        metavar="N",
        help="at most so many, the newest (default: %(default)s)",
    )


def _show(client: Client, args: argparse.Namespace) -> None:
    message = client.message(args.message_id, topic=args.topic)
    print(output.as_json(message.to_json()) if args.format == "json" else output.message_card(message))


def _find(client: Client, args: argparse.Namespace) -> int:
    messages = client.query(args.topic, args.key, begin=args.begin, end=args.end, max=args.max)
    if client.is_routed:  # each broker has its newest, in its order
        messages = sorted(messages, key=lambda message: message.store_timestamp)[-args.max :]
    if args.format == "json":
        print(output.as_json([message.to_json() for message in messages]))
        return 0 if messages else 1
    if not messages:
        print(f"no message of {args.topic} has the key {args.key}")
        return 1
    of_broker = ["broker_name"] if client.is_routed else []
    columns = ["message_id", "stored", *of_broker, "queue", "offset", "tags", "body"]
    rows = [
        [
            m.message_id,
            output.moment(m.store_timestamp),
            *([m.broker_name] if of_broker else []),
            m.queue_id,
            m.queue_offset,
            m.tags,
            output.body_text(m),
        ]
        for m in messages
    ]
    print(output.table(columns, rows))
    return 0
