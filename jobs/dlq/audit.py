"""The rows of `replays`: who did what with which dead letter.

Owns the table's rows.

Invariants: a row is written under the table's lock.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from delta_tables.replays import REPLAYS
from jobs.dlq.choice import KEY, DeadLetterChoice
from jobs.dlq.edited_bodies import Edit
from jobs.operator import operator_name

_ONCE = ("consumer_group", *KEY, "action")


class Audit:
    """What one command writes down.

    Attributes:
        replay_id: Of the command, in each of its rows.
    """

    def __init__(self, choice: DeadLetterChoice, action: str, reason: str | None = None) -> None:
        self.replay_id = uuid.uuid4().hex
        self._choice = choice
        self._said = {
            "consumer_group": choice.group,
            "replay_id": self.replay_id,
            "predicate": choice.predicate,
            "operator": operator_name(),
            "action": action,
            "reason": reason,
        }
        self._written = 0

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Holds the table's lock, with the table as this version writes it.

        Raises:
            Unavailable: STORE_LOCKED when another process writes the table.
        """
        with self._choice.ledger.only_writer(REPLAYS):
            yield

    def row(self, letter: Mapping[str, Any], edit: Edit | None = None) -> dict[str, Any]:
        """The row of one dead letter that was dealt with just now.

        Args:
            letter: The dead letter.
            edit: The other body that it was sent with.
        """
        row = {**self._said, **{name: letter[name] for name in (*KEY, "message_id")}}
        if edit is not None:
            row |= {"old_body_sha256": edit.old_sha256, "new_body_sha256": edit.sha256}
        return row | {"replayed_at": datetime.now(UTC)}

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes rows as one commit; the same ones again after one that failed, which may be in."""
        if rows:
            version = self._written + 1
            table = pa.Table.from_pylist(list(rows), schema=REPLAYS.arrow_schema)
            app_id = f"lakemq/replay/{self.replay_id}"
            self._choice.ledger.append(table, REPLAYS, once=_ONCE, app_id=app_id, version=version)
            self._written = version
