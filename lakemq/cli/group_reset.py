"""Committed offsets that are moved: what would happen, doing it, and for whom it comes to nothing.

Owns the words. What reads a ledger is imported where one is named, because it needs an extra.

Invariants: nothing is moved without ``--execute``, or while a broker of the topic is away. A group is never
said to be moved that goes on where its ledger has it.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import Any

from lakemq.cli.ledger_options import ledger_session
from lakemq.cli.missing_brokers import missing_of
from lakemq.client import Client, LakeMQError, OffsetReset, Unavailable
from lakemq.terminal import output
from lakemq.terminal.failure import CommandFailed, WrongUsage
from store_native.names import retry_topic

NOT_MOVED = (
    "A group that lakemq consume has run goes on where its checkpoint and its ledger say: it is not moved "
    "by this."
)
_PREVIEW = ("reached", "to_offset", "handled", "acknowledged", "given_up", "unread")


def reset(client: Client, args: argparse.Namespace) -> None:
    """Moves a group's committed offsets, or says what would happen.

    Raises:
        CommandFailed: A ledger that has the group is named, and it is to be done.
        WrongUsage: Several brokers have the topic, and the queues are not said to be of one of them.
        LakeMQError: A broker does not answer, or refuses; the ledger does not know the group.
    """
    if args.ledger is not None:
        _with_ledger(client, args)
        return
    if args.conf:
        raise WrongUsage("--conf is for the Spark of a --ledger in a catalog")
    moves: list[dict[str, Any]] = []
    brokers = _brokers(client, args)
    not_moved = _not_moved(args, brokers)
    if args.execute and len(brokers) > 1:
        for broker in brokers.values():
            _reset(broker, args, dry_run=True)  # where one is away, none is moved
    for name, broker in brokers.items():
        try:
            moved = _reset(broker, args, dry_run=not args.execute)
        except LakeMQError as error:
            done = sorted({move["broker_name"] for move in moves})
            if not args.execute or not done:
                raise
            what = f"{error.detail}; done on {', '.join(done)}"
            raise type(error)(error.code, what, **error.context) from error
        moves += [{**_of(name), **asdict(move)} for move in moved]
    if args.format == "json":
        answer = {"executed": args.execute, "moves": "offsets at the broker", "not_moved": not_moved}
        print(output.as_json({**answer, "queues": moves}))
        return
    columns = [
        *of_several(client),
        "topic",
        "queue_id",
        "from_offset",
        "to_offset",
        "redelivered",
        "skipped",
    ]
    print(output.table(columns, [[move[name] for name in columns] for move in moves]))
    again, skipped = sum(move["redelivered"] for move in moves), sum(move["skipped"] for move in moves)
    if args.execute:
        print(
            f"\ndone: the broker's offsets are moved; from them {again} messages come again, "
            f"{skipped} are skipped"
        )
    else:
        print(
            f"\npreview: from the broker's offsets {again} messages would come again, {skipped} be skipped; "
            "--execute moves them"
        )
    if unread := sum(move["from_offset"] is None for move in moves):
        has, begins = ("had", "begins") if args.execute else ("has", "would begin")
        print(f"on {unread} of these queues the group {has} no offset: a group that never ran {begins} there")
    print(not_moved)


def _reset(broker: Client, args: argparse.Namespace, *, dry_run: bool) -> list[OffsetReset]:
    target: dict[str, Any]
    if args.offset is not None:
        target = {"offsets": _queue_offsets(args.offset)}
    elif isinstance(args.to, int):
        target = {"timestamp": args.to}
    else:
        target = {"to": args.to}
    epoch = args.lease_epoch
    return broker.reset_offsets(args.group, args.topic, dry_run=dry_run, lease_epoch=epoch, **target)


def _not_moved(args: argparse.Namespace, brokers: dict[str, Client]) -> str:
    """For whom it comes to nothing: surely for a group of which a broker has an offset on its retry topic."""
    own = retry_topic(args.group)
    if not any(topic == own for each in brokers.values() for topic, _ in each.group_offsets(args.group)):
        return NOT_MOVED
    return (
        f"lakemq consume has run group {args.group}: it goes on where its checkpoint and its ledger say, and "
        "is not moved by this, unless both are gone. With --ledger LEDGER this command says what would come "
        f"again. {_another_group(args)}"
    )


def _another_group(args: argparse.Namespace) -> str:
    """How what the group read is read again, or passed over."""
    group, topic = shlex.quote(args.group), shlex.quote(args.topic)
    if args.offset is not None:
        to = " ".join(f"--offset {shlex.quote(f'{queue}={at}')}" for queue, at in args.offset)
    else:
        to = f"--to {args.to}"
    broker = "" if args.broker is None else f" --broker {shlex.quote(args.broker)}"
    return (
        f"To begin elsewhere take another group: lakemq group clone {group} NEW --execute; "
        f"lakemq group reset NEW --topic {topic} {to}{broker} --execute; lakemq consume --group NEW ... "
        f"(the same ledger will do). Retries that wait stay with {args.group}; lakemq group skip gives up "
        "single messages"
    )


def _with_ledger(client: Client, args: argparse.Namespace) -> None:
    """Says what would come again, or be skipped, of a group that goes on where its ledger has it."""
    from delta_tables.handled_behind import handled_behind
    from delta_tables.known_groups import check_group
    from delta_tables.opened_ledger import OpenedLedger

    spark = ledger_session(args)
    ledger = OpenedLedger(args.ledger, spark)
    check_group(ledger.location, args.group, spark)
    brokers = _brokers(client, args)
    positions: dict[tuple[str, int], int] = {}
    for name, broker in brokers.items():
        broker_name = name or str(broker.cluster()["broker_name"])
        for move in _reset(broker, args, dry_run=True):
            positions[broker_name, move.queue_id] = move.to_offset
    found = handled_behind(ledger.reader.snapshot(), args.group, args.topic, positions)
    rows = [
        {
            "broker_name": name,
            "topic": args.topic,
            "queue_id": queue_id,
            **asdict(found[name, queue_id]),
            "to_offset": to,
        }
        for (name, queue_id), to in sorted(positions.items())
    ]
    why = (
        f"group {args.group} goes on where the ledger {args.ledger} has it: what it has handled is there by "
        "position and attempt, and would be there twice"
    )
    how = f"{why}. {_another_group(args)}"
    if args.format == "json":
        answer = {"executed": False, "ledger": args.ledger, "not_moved": how}
        print(output.as_json({**answer, "queues": rows}))
    else:
        columns = ["broker_name", "topic", "queue_id", *_PREVIEW]
        print(output.table(columns, [[row[name] for name in columns] for row in rows]))
        again, well = sum(row["handled"] for row in rows), sum(row["acknowledged"] for row in rows)
        print(
            f"\nfrom there {again} messages that the ledger has come again, {well} of which went well; "
            f"{sum(row['unread'] for row in rows)} that the group has not read are skipped"
        )
    if args.execute:
        raise CommandFailed(f"nothing was moved: {how}")
    if args.format != "json":
        print(f"It is not moved by this: {how}")


def _brokers(client: Client, args: argparse.Namespace) -> dict[str, Client]:
    """The brokers whose offsets are moved, by name; "" for the only one.

    Raises:
        Unavailable: The list of an ordered topic names one that no route has.
        WrongUsage: Several brokers have the topic, and the queues are not said to be of one of them.
    """
    if not client.is_cluster():
        return {"": client if args.broker is None else client.broker(args.broker)}
    client.group(args.group)
    brokers = client.brokers(args.topic)
    if args.broker is not None:
        return {args.broker: client.broker(args.broker)}
    if missing := missing_of(client, [args.topic], {*client.brokers(), *brokers}):
        what = f"{'; '.join(missing)}. Nothing was moved; --broker NAME moves one broker's queues"
        raise Unavailable("SERVICE_NOT_AVAILABLE", what)
    if len(brokers) > 1 and (args.offset is not None or args.lease_epoch is not None):
        raise WrongUsage(f"several brokers have {args.topic}: say whose queues, --broker {min(brokers)}")
    return brokers


def _of(broker_name: str) -> dict[str, Any]:
    return {"broker_name": broker_name} if broker_name else {}


def _queue_offsets(pairs: list[tuple[str, str]]) -> dict[int, int]:
    if not all(number.isascii() and number.isdigit() for pair in pairs for number in pair):
        raise WrongUsage("--offset takes QUEUE=OFFSET, both whole numbers")
    targets = {int(queue): int(offset) for queue, offset in pairs}
    if len(targets) < len(pairs):
        raise WrongUsage("--offset names a queue twice")
    return targets


def of_several(client: Client) -> list[str]:
    """The column that says which broker a queue is of, where there are several."""
    return ["broker_name"] if client.is_routed else []
