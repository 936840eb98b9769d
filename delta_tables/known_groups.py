"""Which consumer groups a ledger knows.

Owns the question whether one is among them, and the words where it is not.

Invariants: a group that was started with the ledger is known, also before it has handled a message, unless
its checkpoints are elsewhere.
"""

from __future__ import annotations

import difflib
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table
from store_native import validate_group
from store_native.errors import from_code

_WRITTEN = (CONSUMER_OFFSETS, DEAD_LETTERS, DELIVERIES)
"""The smallest first. Each may be all that maintenance has left of a group."""
_MOST_NAMES = 10


def check_group(ledger: PathLedger, group: str) -> None:
    """Looks for a group in a ledger; reads no more than it needs of a table for one that is there.

    Raises:
        InvalidRequest: GROUP_ILLEGAL; ARGUMENT_ILLEGAL when the ledger does not know it, with the name that
            is written most alike.
    """
    validate_group(group)
    if ledger.checkpoints_of(group).is_dir():
        return
    tables = [table for table in _WRITTEN if ledger.exists(table)]
    if any(_ask(ledger, table, f"WHERE consumer_group = '{group}' LIMIT 1") for table in tables):
        return
    rows = [row for table in tables for row in _ask(ledger, table, "GROUP BY consumer_group")]
    known = sorted({str(row["consumer_group"]) for row in rows})
    near = difflib.get_close_matches(group, known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    listed = ", ".join(known[:_MOST_NAMES]) or "no group yet"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    raise from_code(
        "ARGUMENT_ILLEGAL", f"there is no group {group}: {guess}the ledger {ledger} has {listed}{more}"
    )


def _ask(ledger: PathLedger, table: Table, which: str) -> list[dict[str, Any]]:
    session = QueryBuilder()
    session.register(table.name, ledger.open(table))
    found = session.execute(f"SELECT consumer_group FROM {table.name} {which}").read_all()
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows
