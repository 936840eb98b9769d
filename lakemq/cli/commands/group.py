"""``lakemq group``: consumer groups, their committed offsets, and how to move them, over the HTTP API.

Owns the arguments and how groups, lags and the plans of a reset and of a clone are shown; group_status.py
words a status, group_reset.py moves offsets, group_clone.py clones, group_skip.py gives a message up.

Invariants: a reset, a clone and a skip change nothing without ``--execute``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from lakemq.argument_types import between
from lakemq.cli import group_clone, group_reset, group_skip, group_status, options
from lakemq.cli.consumer_lag import consumer_lag, lag_and_away
from lakemq.cli.group_reset import NOT_MOVED
from lakemq.cli.ledger_options import add_conf, add_ledger, ledger_session
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client, GroupConfig, InvalidRequest, LakeMQError, Unavailable
from lakemq.terminal import output
from lakemq.terminal.failure import WrongUsage
from store_native.names import retry_topic

MOST_RETRIES = 1_000
"""A broker takes no more."""
_LEFT_OUT = "Ends with 1 when a broker is left out."


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    words = "list, create, show, delete, clone groups; how they fare; see and reset offsets; skip a message"
    parser = subparsers.add_parser("group", help=words)
    verbs = parser.add_subparsers(dest="verb", required=True)

    add_broker_verb(verbs, "list", _list, "list groups")
    create = add_broker_verb(verbs, "create", _create, "create a group")
    create.add_argument(
        "--retry-max-times",
        type=between(0, MOST_RETRIES),
        metavar="N",
        help=f"retries before a message becomes a dead letter, at most {MOST_RETRIES} (default: 16); "
        "lakemq consume --max-reconsume-times wins",
    )
    options.add_attributes(create, "group")
    show = add_broker_verb(
        verbs, "show", _show, "show a group and its offsets. Ends with 1 when a broker is left out."
    )
    delete = add_broker_verb(verbs, "delete", _delete, "delete a group and its offsets")
    _add_lease_epoch(delete, "delete the group")
    delete.add_argument("--broker", metavar="NAME", help="only at this broker, of several (default: all)")
    options.add_yes(delete)
    offsets = add_broker_verb(
        verbs,
        "offsets",
        _offsets,
        f"show a group's committed offsets and its lag. {_LEFT_OUT}",
    )
    offsets.add_argument("--topic", help="only this topic (default: all)")
    status = add_broker_verb(
        verbs,
        "status",
        _status,
        "how a group fares: lag, rate, retries, replays under way, dead letters, last error, handling times, "
        "from the broker and the ledger",
    )
    add_ledger(status)
    status.add_argument("--json", action="store_const", const="json", dest="format", help="as --format json")
    options.add_watch(status)
    _register_clone(verbs)
    for verb in (create, show, delete, offsets, status, _register_reset(verbs), _register_skip(verbs)):
        verb.add_argument("group", help="the consumer group")


def _register_clone(verbs: Subparsers) -> None:
    clone = add_broker_verb(
        verbs,
        "clone",
        _clone,
        "make a group that begins where another one stands; without --execute only say what would happen. "
        f"{NOT_MOVED}",
    )
    clone.add_argument("source", metavar="FROM", help="the group that is copied")
    clone.add_argument("group", metavar="TO", help="the new group")
    clone.add_argument("--overwrite", action="store_true", help="also where TO has committed offsets")
    clone.add_argument("--execute", action="store_true", help="do it")


def _register_reset(verbs: Subparsers) -> argparse.ArgumentParser:
    reset = add_broker_verb(
        verbs,
        "reset",
        group_reset.reset,
        "move a group's committed offsets on a topic; without --execute only say what would happen. "
        f"{NOT_MOVED}",
    )
    reset.add_argument("--topic", required=True, help="the topic on which it is moved")
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to", type=options.place, metavar="PLACE", help=f"earliest, latest or {options.TIME_HELP}"
    )
    target.add_argument(
        "--offset",
        type=options.pair,
        action="append",
        metavar="QUEUE=OFFSET",
        help="to an offset of one queue (may be repeated)",
    )
    _add_lease_epoch(reset, "move the group")
    reset.add_argument(
        "--broker", metavar="NAME", help="only the queues of this broker, of several (default: all)"
    )
    reset.add_argument(
        "--ledger",
        metavar="LEDGER",
        help="the ledger of a group that lakemq consume has run: say what of it would come again or be "
        "skipped, and how; such a group is not moved, and --execute is refused",
    )
    add_conf(reset)
    reset.add_argument("--execute", action="store_true", help="do it")
    return reset


def _add_lease_epoch(verb: argparse.ArgumentParser, what: str) -> None:
    verb.add_argument(
        "--lease-epoch",
        type=options.whole,
        metavar="N",
        help=f"{what} although a driver holds it, in the name of the lease with this epoch",
    )


def _register_skip(verbs: Subparsers) -> argparse.ArgumentParser:
    skip = add_broker_verb(
        verbs,
        "skip",
        _skip,
        "give up a message that a group does not get done with; without --execute only say how far the group "
        "is with it. At its next attempt the handler is not called: the message is a dead letter, with the "
        "reason, and its lane goes on. The group may run.",
    )
    skip.add_argument("--topic", required=True, help="topic of the message, where it was first stored")
    skip.add_argument("--queue", type=options.whole, required=True, metavar="Q", help="its queue there")
    skip.add_argument("--offset", type=options.whole, required=True, metavar="N", help="its offset there")
    skip.add_argument("--broker", metavar="NAME", help="its broker, where several have the topic")
    skip.add_argument("--reason", required=True, metavar="TEXT", help="why, for the ledger")
    skip.add_argument("--execute", action="store_true", help="do it")
    add_ledger(skip)
    return skip


def _list(client: Client, args: argparse.Namespace) -> None:
    groups = client.groups()
    if args.format == "json":
        print(output.as_json([asdict(group) for group in groups]))
        return
    columns = ["group", "retry_max_times", "consume_enable", "attributes"]
    rows = [[g.group, g.retry_max_times, g.consume_enable, g.attributes] for g in groups]
    print(output.table(columns, rows, widest=output.WHOLE_NAMES))


def _create(client: Client, args: argparse.Namespace) -> None:
    brokers = list(client.brokers().values()) if client.is_cluster() else [client]
    # One that a broker lacks, because that was away, is made there.
    if all(any(group.group == args.group for group in broker.groups()) for broker in brokers):
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"group {args.group} exists")
    attributes = dict(args.attribute) if args.attribute else None
    config = client.put_group(args.group, retry_max_times=args.retry_max_times, attributes=attributes)
    _print(config, [], args)


def _show(client: Client, args: argparse.Namespace) -> int:
    rows, left_out = consumer_lag(client, args.group)
    _print(client.group(args.group), rows, args)
    return 1 if left_out else 0


def _delete(client: Client, args: argparse.Namespace) -> None:
    if args.broker is not None:
        client = client.broker(args.broker)
    elif args.lease_epoch is not None and client.is_cluster():
        raise WrongUsage(f"each broker has a lease of its own: say whose, --broker {min(client.brokers())}")
    config = client.group(args.group)
    options.confirm(args, f"Delete group {config.group}? Its committed offsets are forgotten.")
    client.delete_group(args.group, lease_epoch=args.lease_epoch)
    if args.format == "json":
        print(output.as_json({"group": args.group, "deleted": True}))
    else:
        print(f"group {args.group} is deleted")


def _offsets(client: Client, args: argparse.Namespace) -> int:
    rows, left_out = consumer_lag(client, args.group, args.topic)
    if not rows:
        of = "" if args.topic is None else f" of {args.topic}"
        print(f"lakemq: group {args.group} has committed no offset{of} yet", file=sys.stderr)
    print(output.as_json(rows) if args.format == "json" else _lag_table(rows))
    return 1 if left_out else 0


def _status(client: Client, args: argparse.Namespace) -> None:
    from delta_tables.group_status import ledger_status
    from delta_tables.opened_ledger import OpenedLedger

    ledger = OpenedLedger(args.ledger, ledger_session(args)).reader
    for _ in options.rounds(args):
        now = datetime.now(UTC)
        status = ledger_status(ledger, args.group, now)
        in_ledger = status.last_batch is not None or status.last_error is not None
        behind = _behind(client, args.group, round(now.timestamp() * 1000), in_ledger=in_ledger)
        if args.format == "json":
            said = group_status.as_object(args.group, behind, status)
            print(output.as_json(said, indent=2 if args.watch is None else None), flush=True)
        else:
            print(group_status.as_text(args.group, behind, status), flush=True)


def _behind(client: Client, group: str, now_ms: int, *, in_ledger: bool) -> dict[str, Any]:
    """How far behind a group is, where all brokers answer: the ledger has the rest all the same.

    Raises:
        LakeMQError: A broker does not answer, or does not know the group, and the ledger has nothing of it.
    """
    try:
        rows, away = lag_and_away(client, group)
        if away:
            raise away[0]
        if not rows:
            print(f"lakemq: group {group} has committed no offset yet", file=sys.stderr)
            return {"lag": None, "lag_s": None}
        return group_status.lag(client, rows, retry_topic(group), now_ms)
    except LakeMQError as error:
        if not in_ledger or not (isinstance(error, Unavailable) or error.code == "GROUP_NOT_EXIST"):
            raise
        print(f"lakemq: without the broker: {error}", file=sys.stderr)
        return {"lag": None, "lag_s": None}


def _clone(client: Client, args: argparse.Namespace) -> None:
    plan = group_clone.planned(client, args.source, args.group, overwrite=args.overwrite)
    kept_aside = group_clone.execute(client, plan) if args.execute else []
    for name in kept_aside:
        where = f"broker {name}: " if name else ""
        print(
            f"lakemq: {where}its master is away, a slave keeps the offsets for the next one", file=sys.stderr
        )
    if args.format == "json":
        answer = {
            "executed": args.execute,
            "group": args.group,
            "source": args.source,
            "created": plan.is_new,
        }
        print(output.as_json({**answer, "not_moved": NOT_MOVED, "queues": plan.queues}))
        return
    columns = [*group_reset.of_several(client), "topic", "queue_id", "from_offset", "to_offset", "lag"]
    print(output.table(columns, [[row[name] for name in columns] for row in plan.queues]))
    lag = sum(row["lag"] for row in plan.queues)
    if args.execute:
        print(f"\ndone: group {args.group} begins where {args.source} stands; {lag} messages come to it")
    else:
        print(
            f"\npreview: group {args.group} would begin where {args.source} stands, and {lag} messages "
            "come to it; --execute does it"
        )
    print(NOT_MOVED)


def _skip(client: Client, args: argparse.Namespace) -> None:
    print(group_skip.skip(client, args))


def _print(group: GroupConfig, rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    if args.format == "json":
        print(output.as_json({**asdict(group), "offsets": rows}))
        return
    print(output.fields(asdict(group)))
    if rows:
        print()
        print(_lag_table(rows))


def _lag_table(rows: list[dict[str, Any]]) -> str:
    of_several = ["broker_name"] if rows and "broker_name" in rows[0] else []
    columns = [*of_several, "topic", "queue_id", "offset", "max_offset", "lag"]
    return output.table(columns, [[row[name] for name in columns] for row in rows])
