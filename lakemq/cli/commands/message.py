"""``lakemq message``: show one message by id, or find messages by key, over the HTTP API.

Owns the arguments, how messages are shown, and what is said of brokers that were not asked.

Invariants: that there is no message is said, with exit code 1, only where every broker was asked.
"""

from __future__ import annotations

import argparse
import sys

from lakemq.cli import options
from lakemq.cli.missing_brokers import missing_of
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client, InvalidRequest, ReceivedMessage, Unavailable
from lakemq.terminal import output
from lakemq.terminal.failure import CommandFailed, described

_EXIT = "Ends with 1 when there is none, with 3 when a broker was not asked."
NOT_ALL_ASKED = 3
"""The exit code where a broker was not asked, whatever the others have."""


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("message", help="show one message, or find messages by key")
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = add_broker_verb(verbs, "show", _show, f"show one message by its message id or offset id. {_EXIT}")
    show.add_argument("message_id", metavar="ID", help="either id of the message")
    show.add_argument("--topic", help="where to look (default: in all topics)")
    find = add_broker_verb(verbs, "find", _find, f"find messages of a topic by one of their keys. {_EXIT}")
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


def _show(client: Client, args: argparse.Namespace) -> int:
    try:
        message = client.message(args.message_id, topic=args.topic)
    except Unavailable as error:
        return _say_not_asked([described(error)])
    except InvalidRequest as error:
        if error.code != "MESSAGE_NOT_EXIST" or not (left_out := _unknown(client, args.topic)):
            raise
        return _say_not_asked(left_out)
    print(output.as_json(message.to_json()) if args.format == "json" else output.message_card(message))
    return 0


def _find(client: Client, args: argparse.Namespace) -> int:
    if args.begin is not None and args.end is not None and args.begin > args.end:
        raise CommandFailed("--begin is behind --end: no message is stored between them")
    try:
        messages, left_out = _query(client, args)
    except Unavailable as error:
        return _say_not_asked([described(error)])
    if client.is_routed:  # each broker has its newest, in its order
        messages = sorted(messages, key=lambda message: message.store_timestamp)[-args.max :]
    if args.format == "json":
        print(output.as_json([message.to_json() for message in messages]))
        return _say_not_asked(left_out) if left_out else int(not messages)
    if not messages and left_out:
        return _say_not_asked(left_out)
    if not messages:
        timed = args.begin is not None or args.end is not None
        which = f"{args.topic} that was stored in that time" if timed else args.topic
        print(f"no message of {which} has the key {args.key}")
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
    return _say_not_asked(left_out) if left_out else 0


def _query(client: Client, args: argparse.Namespace) -> tuple[list[ReceivedMessage], list[str]]:
    """Returns what the brokers find that answer, and why others were not asked, or not their masters."""
    how = {"begin": args.begin, "end": args.end, "max": args.max}
    if not client.is_cluster():
        return client.query(args.topic, args.key, **how), []
    found: list[ReceivedMessage] = []
    left_out: list[str] = []
    lacking: list[InvalidRequest] = []
    brokers = client.brokers()
    for name, broker in brokers.items():
        of_slaves = broker.slave_answers
        try:
            found += broker.query(args.topic, args.key, **how)
        except Unavailable as error:
            left_out.append(str(error))
        except InvalidRequest as error:
            if error.code != "TOPIC_NOT_EXIST":
                raise
            lacking.append(error)
        if broker.slave_answers > of_slaves:
            left_out.append(f"broker {name}: its slave answered, which may lack what its master had last")
    left_out += _unknown(client, args.topic)
    if len(lacking) == len(brokers) and not left_out:
        raise lacking[0]
    return found, left_out


def _unknown(client: Client, topic: str | None) -> list[str]:
    """The brokers that calls do not reach because nobody knows where they are, in words."""
    if not client.is_cluster():
        return []
    topics = [one.topic for one in client.topics() if one.order_conf] if topic is None else [topic]
    return [
        *missing_of(client, topics, client.brokers()),
        *(
            f"{address} does not answer: which broker that is, is not known"
            for address in client.never_answered()
        ),
    ]


def _say_not_asked(left_out: list[str]) -> int:
    for what in left_out:
        print(f"lakemq: not asked: {what}", file=sys.stderr)
    print("lakemq: what a broker that was not asked has, is not known", file=sys.stderr)
    return NOT_ALL_ASKED
