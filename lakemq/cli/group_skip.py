"""A message that an operator gives up for a group: whose queue is meant, and how that is shown.

Owns the words; jobs.skip does the work, imported when the command runs, because it needs an extra.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakemq.cli.ledger_options import ledger_session
from lakemq.client import Client
from lakemq.terminal import output
from lakemq.terminal.failure import WrongUsage

if TYPE_CHECKING:
    from jobs.skip.message_state import MessageState


def skip(client: Client, args: argparse.Namespace) -> str:
    """Gives a message up, or only looks at it; returns what is printed.

    Raises:
        WrongUsage: Several brokers have the topic, and none is named.
        LakeMQError: It cannot be given up; the broker does not answer.
    """
    from jobs.skip.message_state import GroupLedger, Place
    from jobs.skip.skip import check_reason, look
    from jobs.skip.skip import skip as give_up

    check_reason(args.reason)
    ledger = GroupLedger(args.ledger, args.group, spark=ledger_session(args))
    at = Place(args.topic, _broker_name(client, args), args.queue, args.offset)
    if args.broker is None and (again := ledger.given_again(at)) is not None:
        raise WrongUsage(
            f"the ledger has two messages at offset {at.queue_offset} of that queue: the one that is there "
            f"now, --broker {again}, and one of a log that was truncated, --broker {at.broker_name}"
        )
    skip_id: str | None = None
    if args.execute:
        skip_id, state = give_up(ledger, client, at, args.reason)
    else:
        state = look(ledger, client, at)
    shown: dict[str, Any] = {"group": args.group, **at._asdict(), **asdict(state)}
    if args.format == "json":
        due = state.due_at and state.due_at.isoformat()
        return output.as_json({**shown, "due_at": due, "skip_id": skip_id, "executed": args.execute})
    shown["state"] = _WAITS_FOR[state.state]
    shown["attempts"] = state.attempts or "none"
    if state.parked_behind == 0:
        del shown["parked_behind"]
    named = {name.replace("_", " "): value for name, value in shown.items() if value is not None}
    return f"{output.fields(named)}\n\n{_said(args, state, skip_id)}"


_WAITS_FOR = {
    "RETRY": "waits for its next attempt",
    "PARKED": "parked: waits for an earlier message of its lane",
    "NOT_HANDLED": "not handled yet",
}


def _said(args: argparse.Namespace, state: MessageState, skip_id: str | None) -> str:
    if state.due_at is not None:
        when = f"when attempt {state.attempts + 1} comes, due at {output.cell(state.due_at)}, not before"
    elif state.state == "PARKED":
        when = "when its turn has come on its lane"
    else:
        when = "when the group comes to it"
    becomes = f"it up {when}: no call of the handler, and a dead letter"
    if skip_id is None:
        return f"preview: group {args.group} would give {becomes}; --execute does it"
    return f"done: group {args.group} gives {becomes} (skip {skip_id})"


def _broker_name(client: Client, args: argparse.Namespace) -> str:
    if args.broker is not None:
        return str(args.broker)
    brokers = client.brokers(args.topic)
    if len(brokers) > 1:
        raise WrongUsage(f"several brokers have {args.topic}: say whose queue, --broker {min(brokers)}")
    return min(brokers)
