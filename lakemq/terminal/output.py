"""What commands print: aligned tables for people, JSON for programs.

Owns the look of a table, of a time and of a body. Pure: everything returns text, control characters of
messages included; guard.py keeps them from a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakemq.terminal.guard import one_line

if TYPE_CHECKING:
    from lakemq.client import ReceivedMessage, SendResult

WIDEST = 60
"""Characters a table shows of a value by default."""

WHOLE_NAMES = 255
"""The longest name there is, a group's."""

_NOTHING = "-"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, widest: int = WIDEST) -> str:
    """Lays out rows under their column names; numbers are aligned right, long values are cut.

    >>> print(table(["topic", "queues"], [["orders", 4], ["a", 16]]))
    topic   queues
    orders       4
    a           16
    """
    values = [list(row) for row in rows]
    cells = [[_cut(cell(value), widest) for value in row] for row in values]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    right = [bool(values) and all(_is_number(row[i]) for row in values) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(columns), *cells]
    )


def is_cut(value: Any) -> bool:
    """Says whether a table shows only the beginning of a value."""
    return len(cell(value)) > WIDEST


def fields(values: Mapping[str, Any]) -> str:
    """Lays out one thing as ``name  value`` lines."""
    width = max((len(name) for name in values), default=0)
    return "\n".join(f"{name.ljust(width)}  {cell(value)}".rstrip() for name, value in values.items())


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """Writes JSON; one line when ``indent`` is None."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, indent=indent, ensure_ascii=False, separators=separators, default=str)


def cell(value: Any) -> str:
    """Writes one value as a table shows it: on one line, nothing as ``-``."""
    if value is None or value == "" or value == () or value == []:
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return one_line(", ".join(f"{name}={inner}" for name, inner in value.items())) or _NOTHING
    if isinstance(value, (list, tuple)):
        return one_line(" ".join(str(inner) for inner in value))
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    return one_line(str(value))


def moment(epoch_ms: int) -> str:
    """Writes epoch milliseconds as UTC: ``2026-11-21T08:00:00.123Z``."""
    when = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{epoch_ms % 1000:03d}Z"


def body_text(message: ReceivedMessage) -> str:
    """Writes a body for a person: its text, or its size when it is not text."""
    try:
        return message.body.decode("utf-8")
    except UnicodeDecodeError:
        return f"({len(message.body)} bytes, not text; --format json has them in base64)"


def message_line(message: ReceivedMessage, *, with_broker: bool = False) -> str:
    """Writes a message on one line: time, position, tags, keys, body.

    Args:
        message: The message.
        with_broker: Its position names the broker: there are several.
    """
    return "  ".join(
        [
            moment(message.store_timestamp),
            queue_place(message, with_broker=with_broker),
            cell(message.tags),
            cell(message.keys),
            one_line(body_text(message)),
        ]
    )


def queue_place(at: ReceivedMessage | SendResult, *, with_broker: bool) -> str:
    """Writes where a message is: ``q1@17``, or ``broker-a q1@17``."""
    broker = f"{at.broker_name} " if with_broker else ""
    return f"{broker}q{at.queue_id}@{at.queue_offset}"


def message_card(message: ReceivedMessage) -> str:
    """Writes a whole message: its fields, an empty line, its body."""
    card = message.to_json()
    for name in ("body", "body_base64"):
        card.pop(name, None)
    for name in ("born_timestamp", "store_timestamp"):
        card[name] = moment(card[name])
    return f"{fields(card)}\n\n{body_text(message)}"


def _cut(text: str, widest: int) -> str:
    return text if len(text) <= widest else text[: widest - 3] + "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
