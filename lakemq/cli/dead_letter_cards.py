"""What a person sees of dead letters: rows of a table, and a card of each.

Owns their words. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakemq.terminal import output

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("topic", "broker_name", "queue_id", "queue_offset", "attempts", "last_attempt_at", "message_id")
_OF_CARD = (
    *("message_id", "topic", "broker_name", "queue_id", "queue_offset", "keys", "tags", "properties"),
    *("reason", "attempts", "first_attempt_at", "last_attempt_at", "error_type", "error_text"),
)
_OF_AUDIT = ("replayed_at", "discarded_at", "discard_reason", "operator", "replayed_body_sha256")
_OF_ATTEMPT = ("attempt", "verdict", "started_at", "finished_at", "next_attempt_at", "reason", "error_text")


def table(letters: pa.Table, most: int) -> str:
    """Dead letters, a line each, and how many more there are."""
    rows = [[str(value) for value in summary(letter).values()] for letter in letters[:most].to_pylist()]
    more = letters.num_rows - len(rows)
    return output.table([*COLUMNS, "reason"], rows) + (f"\n... and {more:,} more" if more > 0 else "")


def summary(letter: Mapping[str, Any]) -> dict[str, Any]:
    """A dead letter in a few words."""
    said = {name: letter[name] for name in COLUMNS}
    said["last_attempt_at"] = output.moment(round(letter["last_attempt_at"].timestamp() * 1000))
    return said | {"reason": letter["reason"] or letter["error_text"] or ""}


def card(letter: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]]) -> str:
    """All of a dead letter: its fields, its attempts, the last traceback, its body."""
    shown = {name: letter[name] for name in _OF_CARD} | {"properties": dict(letter["properties"] or ())}
    shown |= {name: letter[name] for name in _OF_AUDIT if letter[name] is not None}
    parts = [output.fields(shown)]
    if attempts:
        parts.append(output.table(_OF_ATTEMPT, [[each[name] for name in _OF_ATTEMPT] for each in attempts]))
    if letter["error_trace"]:
        parts.append(letter["error_trace"].rstrip())
    parts.append(_body(letter["body"] or b""))
    return "\n\n".join(parts)


def _body(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return f"({len(body)} bytes, not text; --format json has them in base64)"
