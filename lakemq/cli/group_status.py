"""How a group fares, from its broker and its ledger, and how that is shown.

Owns the lag in seconds, and the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakemq.client import Client
from lakemq.terminal import output

if TYPE_CHECKING:
    from delta_tables.group_status import LedgerStatus

_HANDLING = ("topic", "attempts", "failed", "mean_ms", "p95_ms", "max_ms")


def lag(client: Client, queues: Sequence[Mapping[str, Any]], retry_topic: str, now_ms: int) -> dict[str, Any]:
    """Adds up how far behind a group is.

    Args:
        client: The endpoint's.
        queues: Rows of `consumer_lag`.
        retry_topic: The group's, whose messages are counted as retries.
        now_ms: The time.

    Returns:
        lag: messages not handled yet. lag_s: how long the oldest of them has been stored, 0 without one.
    """
    behind = [queue for queue in queues if queue["topic"] != retry_topic and queue["lag"]]
    ages = [now_ms - at for queue in behind if (at := _stored_at(client, queue)) is not None]
    return {
        "lag": sum(queue["lag"] for queue in behind),
        "lag_s": round(max([0, *ages]) / 1000, 3),
    }


def _stored_at(client: Client, queue: Mapping[str, Any]) -> int | None:
    """When the oldest message was stored that a group has not handled; None when it is gone meanwhile."""
    at, name = queue["offset"], queue.get("broker_name")
    for _ in range(2):  # what expired is passed over once: the answer says where messages begin
        found = client.pull(queue["topic"], queue["queue_id"], at, max=1, broker_name=name)
        if found.messages:
            return found.messages[0].store_timestamp
        at = max(found.min_offset, found.next_offset)
    return None


def as_object(group: str, behind: Mapping[str, Any], status: LedgerStatus) -> dict[str, Any]:
    """The status as JSON has it; times in ISO 8601."""
    said: dict[str, Any] = {"group": group, **behind, **asdict(status)}
    return {name: _plain(value) for name, value in said.items()}


def as_text(group: str, behind: Mapping[str, Any], status: LedgerStatus) -> str:
    """The status as a person reads it."""
    shown: dict[str, Any] = {"group": group, "at": status.at}
    if behind["lag"] is None:
        reported = "nothing" if status.reported_lag is None else f"{status.reported_lag:,} messages"
        shown["lag"] = f"not known; the last batches reported {reported}"
    else:
        shown["lag"] = f"{behind['lag']:,} messages, the oldest {behind['lag_s']:,.1f} s old"
    shown["rate"] = f"{status.rate_per_s:,.1f} messages a second over the last minute"
    due = "" if status.next_due_at is None else f", the first at {output.cell(status.next_due_at)}"
    shown["retries"] = f"{status.pending_retries:,} wait, {status.due_retries:,} of them are due{due}"
    if status.oldest_parked_at is not None:
        since = output.cell(status.oldest_parked_at)
        shown["parked"] = f"{status.parked:,} wait for an earlier message, the first since {since}"
    shown["replays"] = f"{status.replays_under_way:,} sent, without an attempt yet"
    if status.oldest_send_at is not None:
        since = output.cell(status.oldest_send_at)
        waiting = [f"{status.pending_sends:,} messages wait to be sent"] if status.pending_sends else []
        written = f"{status.pending_rows:,} rows {'to be' if waiting else 'wait to be'} written"
        waiting += [written] if status.pending_rows else []
        shown["outbox"] = f"{', '.join(waiting)}, the first since {since}"
    if status.refused_send is not None:
        refused = status.refused_send
        what = f"what {refused.message_id} sends or writes: {refused.code}: {refused.error}"
        shown["refused"] = f"{output.cell(refused.at)} {what}"
    shown["dead letters"] = f"{status.dead_letters:,} in the last hour"
    if status.oldest_given_up_at is not None:
        since, count = output.cell(status.oldest_given_up_at), status.pending_dead_letters
        shown["given up"] = f"{count:,} that are no dead letters yet, the first since {since}"
    if status.last_batch is not None:
        batch = status.last_batch
        took = "" if batch.seconds is None else f" in {batch.seconds:,.1f} s"
        shown["last batch"] = f"{batch.messages:,} messages{took}, reported at {output.cell(batch.at)}"
    if status.last_error is not None:
        error = status.last_error
        what = ": ".join(filter(None, (error.error_type, error.error)))
        where = f"{error.message_id} at attempt {error.attempt}"
        shown["last error"] = f"{output.cell(error.at)} {error.verdict} of {where}: {what}"
    text = output.fields(shown)
    if status.handling:
        rows = [[_rounded(getattr(topic, name)) for name in _HANDLING] for topic in status.handling]
        text += "\n\nThe handler in the last hour:\n" + output.table(_HANDLING, rows)
    return text


def _rounded(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
