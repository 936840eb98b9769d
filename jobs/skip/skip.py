"""A message that is given up: its next attempt is made without a call of the handler.

Owns the rows of `skipped_messages`.

Invariants: what a message waits for is looked at once no other process writes the table; a message has one
skip that holds, and a group MOST_OPEN at most, since its driver has them in memory. The group may run.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pyarrow as pa

from delta_tables.skipped_messages import SKIPPED_MESSAGES
from jobs.handler.reasons import reason_text
from jobs.operator import operator_name
from jobs.skip.message_state import GroupLedger, MessageState, Place, refused
from jobs.skip.unhandled import unhandled
from lakemq.client import Client

MOST_OPEN = 10_000
_ONCE = ("consumer_group", *Place._fields, "attempts")
MOST_REASON = 500
"""Characters; each batch has the reasons of all skips that hold."""


def look(ledger: GroupLedger, client: Client, at: Place, *, most_open: int = MOST_OPEN) -> MessageState:
    """Says how far the group is with a message that can be given up.

    Args:
        ledger: What the ledger says of the group.
        client: Of the broker, which is asked where the ledger has no row of the message.
        at: The message.
        most_open: So many skips of the group may hold.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL: it cannot be given up, or is already.
        Unavailable: The broker is asked and does not answer.
    """
    found = ledger.state(at)
    if not isinstance(found, MessageState):
        found = unhandled(client, ledger.group, at, found)
    held = ledger.open_skips()
    for skip in held:
        if skip.position == at:
            when = f"since {skip.skipped_at:%Y-%m-%d %H:%M:%S}Z by {skip.operator}: {skip.reason}"
            raise refused(f"message {found.message_id} is given up already, {when} ({at})")
    if len(held) >= most_open:
        raise refused(
            f"{len(held)} messages of group {ledger.group} are given up and have had no attempt since: no "
            "more are taken until some have"
        )
    return found


def skip(
    ledger: GroupLedger, client: Client, at: Place, reason: str, *, most_open: int = MOST_OPEN
) -> tuple[str, MessageState]:
    """Gives a message up.

    Args:
        ledger: As for `look`.
        client: The same.
        at: The same.
        reason: Why, for the ledger.
        most_open: As for `look`.

    Returns:
        The id in its row of `skipped_messages`, and how far the group is with it.

    Raises:
        InvalidRequest: As `look`; ARGUMENT_ILLEGAL when the reason is empty or too long.
        Unavailable: STORE_LOCKED when another process writes the table; as `look`.
    """
    check_reason(reason)
    with ledger.opened.only_writer(SKIPPED_MESSAGES):
        found = look(ledger, client, at, most_open=most_open)
        skip_id = uuid.uuid4().hex
        row = {
            "consumer_group": ledger.group,
            **at._asdict(),
            "attempts": found.attempts,
            "message_id": found.message_id,
            "skip_id": skip_id,
            "operator": operator_name(),
            "reason": reason_text(reason),
            "skipped_at": datetime.now(UTC),
        }
        table = pa.Table.from_pylist([row], schema=SKIPPED_MESSAGES.arrow_schema)
        app_id = f"lakemq/skip/{skip_id}"
        ledger.opened.append(table, SKIPPED_MESSAGES, once=_ONCE, app_id=app_id, version=1)
    return skip_id, found


def check_reason(reason: str) -> None:
    """Refuses a reason that says nothing, or too much.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if not reason.strip():
        raise refused("--reason says why the message is given up")
    if len(reason) > MOST_REASON:
        raise refused(f"--reason has {MOST_REASON} characters at most")
