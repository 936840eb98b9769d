"""What a batch's verdicts carry into their rows of `deliveries`: messages to send, rows to write.

Owns that a verdict with something that its group may not send or write, or that does not fit its table,
carries nothing. Pure.

Processes: executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.table import TABLE_ROWS
from delta_tables.user_tables.columns import TableColumns
from jobs.group.addressing import Acceptance, addressed
from jobs.handler.reasons import reason_text
from jobs.handler.results import HandlerResults
from jobs.handler.table_rows import MOST_BYTES, rows_in, too_large
from jobs.redelivery.original_position import Positions

KeptRow = dict[str, str]
"""The fields of `delta_tables.table.TABLE_ROWS`."""


@dataclass(frozen=True)
class Carriers:
    """What the verdicts of a group may carry.

    Attributes:
        messages: those that are taken.
        tables: the columns of the tables that rows may be written to, by their names.
    """

    messages: Acceptance = field(default_factory=lambda: Acceptance(frozenset()))
    tables: Mapping[str, TableColumns] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether they may carry anything."""
        return bool(self.messages.send_to or self.tables)

    def kept_rows(self, packed: bytes) -> list[KeptRow]:
        """The rows of a verdict as they are kept.

        Raises:
            TypeError, ValueError: One is of another table, does not fit, or all are too large.
        """
        made: list[KeptRow] = []
        for number, (table, values) in enumerate(rows_in(packed), start=1):
            columns = self.tables.get(table)
            if columns is None:
                named = ", ".join(sorted(self.tables)) or "no table"
                raise ValueError(f"the group writes to {named}, not to {table!r}: name it with --write-to")
            try:
                made.append({"table_name": table, "row_json": columns.kept(values)})
            except (TypeError, ValueError) as error:
                raise ValueError(f"row {number}, for {table}: {error}") from None
        size = sum(len(row["row_json"].encode()) for row in made)
        if size > MOST_BYTES:
            raise too_large(size)
        return made


CARRIES_NOTHING = Carriers()


def carried(
    results: HandlerResults, ids: pa.Array, positions: Positions, group: str, may: Carriers
) -> tuple[dict[str, pa.Array], pa.Array | None]:
    """Completes what the verdicts of a batch carry.

    Args:
        results: the verdicts.
        ids: per row the id of its message.
        positions: per row its original position and attempt.
        group: the group.
        may: what it may send and write.

    Returns:
        Columns of `deliveries`, and per row why its verdict is refused: it carries nothing then. None where
        none carries anything.
    """
    if results.outbox is None and results.table_rows is None:
        return {}, None
    refused = pa.nulls(results.rows, pa.string())
    outbox = table_rows = None
    if results.outbox is not None:
        outbox, refused = addressed(results.outbox, ids, positions, group, may.messages)
    if results.table_rows is not None:
        table_rows, refused_rows = _kept(results.table_rows, may)
        refused = pc.coalesce(refused, refused_rows)
    columns: dict[str, pa.Array] = {}
    for names, listed in ((("outbox", "sends"), outbox), (("table_rows", "writes"), table_rows)):
        if listed is not None:
            left = pc.if_else(refused.is_valid(), pa.scalar(None, listed.type), listed)
            columns |= {names[0]: left, names[1]: pc.list_value_length(left)}
    return columns, refused


def _kept(packed: pa.Array, may: Carriers) -> tuple[pa.Array, pa.Array]:
    made: list[list[KeptRow] | None] = [None] * len(packed)
    refused: list[str | None] = [None] * len(packed)
    for row in pc.indices_nonzero(packed.is_valid()).to_pylist():
        try:
            made[row] = may.kept_rows(packed[row].as_py())
        except ValueError as error:
            refused[row] = reason_text(str(error))
    return pa.array(made, TABLE_ROWS), pa.array(refused, pa.string())
