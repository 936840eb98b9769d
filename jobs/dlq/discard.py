"""Dead letters put aside: neither listed nor sent again, unless they are asked for.

Owns the order: they are chosen once no other process writes, and written down with a reason.

Invariants: nothing is deleted; the message stays in `dead_letters` and on the group's dead-letter topic.
"""

from __future__ import annotations

from delta_tables.replays import DISCARD
from jobs.dlq.audit import Audit
from jobs.dlq.choice import KEY, DeadLetterChoice
from store_native.errors import from_code


def discard(choice: DeadLetterChoice, reason: str) -> tuple[str, int]:
    """Puts dead letters aside.

    Args:
        choice: Which.
        reason: Why, for the ledger.

    Returns:
        The id in the rows of `replays`, and how many there are.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL when the reason is empty.
        Unavailable: STORE_LOCKED when another process writes the table.
    """
    check_reason(reason)
    audit = Audit(choice, DISCARD, reason)
    with audit.only_writer():
        letters = choice.rows((*KEY, "message_id")).to_pylist()
        audit.write([audit.row(letter) for letter in letters])
    return audit.replay_id, len(letters)


def check_reason(reason: str) -> None:
    """Refuses a reason that says nothing.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if not reason.strip():
        raise from_code("ARGUMENT_ILLEGAL", "--reason says why they are discarded")
