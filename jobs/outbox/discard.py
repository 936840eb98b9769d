"""What verdicts send or write, given up before it is: the outbox leaves it out from then on.

Owns the rows of `discarded_sends`.

Invariants: they are chosen once no other process writes the table, and written down with a reason; nothing is
deleted. The group may run meanwhile.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pyarrow as pa

from delta_tables.discarded_sends import DISCARDED_SENDS
from jobs.operator import operator_name
from jobs.outbox.pending import KEY, NAMED, PendingSends
from store_native.errors import from_code

_ONCE = ("consumer_group", *KEY)


def discard(pending: PendingSends, reason: str) -> tuple[str, int]:
    """Gives messages up.

    Args:
        pending: Which.
        reason: Why, for the ledger.

    Returns:
        The id in the rows of `discarded_sends`, and how many there are.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL when the reason is empty.
        Unavailable: STORE_LOCKED when another process writes the table.
    """
    check_reason(reason)
    with pending.ledger.only_writer(DISCARDED_SENDS):
        chosen = pending.rows().to_pylist()
        said = {
            "consumer_group": pending.group,
            "discard_id": uuid.uuid4().hex,
            "predicate": pending.predicate,
            "operator": operator_name(),
            "reason": reason,
            "discarded_at": datetime.now(UTC),
        }
        if chosen:
            rows = [said | {name: message[name] for name in NAMED} for message in chosen]
            table = pa.Table.from_pylist(rows, schema=DISCARDED_SENDS.arrow_schema)
            app_id = f"lakemq/discard/{said['discard_id']}"
            pending.ledger.append(table, DISCARDED_SENDS, once=_ONCE, app_id=app_id, version=1)
    return str(said["discard_id"]), len(chosen)


def check_reason(reason: str) -> None:
    """Refuses a reason that says nothing.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if not reason.strip():
        raise from_code("ARGUMENT_ILLEGAL", "--reason says why they are discarded")
