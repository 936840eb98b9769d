"""Which consumer groups a ledger knows.

Owns the question whether one is among them, and the words where it is not.

Invariants: a group that was started with the ledger is known, also before it has handled a message, unless
its checkpoints are elsewhere.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import QueryBuilder

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.table import Table
from store_native import validate_group
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITTEN = (CONSUMER_OFFSETS, DEAD_LETTERS, DELIVERIES)
"""The smallest first. Each may be all that maintenance has left of a group."""
_MOST_NAMES = 10


def check_group(ledger: LedgerLocation, group: str, spark: SparkSession | None = None) -> None:
    """Looks for a group in a ledger; reads no more than it needs of a table for one that is there.

    Args:
        ledger: The ledger.
        group: The group.
        spark: A session that reaches a ledger in a catalog.

    Raises:
        InvalidRequest: GROUP_ILLEGAL; ARGUMENT_ILLEGAL when the ledger does not know it, with the name that
            is written most alike.
    """
    validate_group(group)
    checkpoints = ledger.checkpoints_of(group)
    if checkpoints is not None and checkpoints.is_dir():
        return
    tables = [table for table in _WRITTEN if ledger.exists(table, spark)]
    if any(_ask(ledger, table, f"WHERE consumer_group = '{group}' LIMIT 1", spark) for table in tables):
        return
    known = sorted(
        {name for table in tables for name in _ask(ledger, table, "GROUP BY consumer_group", spark)}
    )
    near = difflib.get_close_matches(group, known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    listed = ", ".join(known[:_MOST_NAMES]) or "no group yet"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    raise from_code(
        "ARGUMENT_ILLEGAL", f"there is no group {group}: {guess}the ledger {ledger} has {listed}{more}"
    )


def _ask(ledger: LedgerLocation, table: Table, which: str, spark: SparkSession | None) -> list[str]:
    if isinstance(ledger, PathLedger):
        session = QueryBuilder()
        session.register(table.name, ledger.open(table))
        found = pa.table(session.execute(f"SELECT consumer_group FROM {table.name} {which}").read_all())
    else:
        assert spark is not None, "a ledger in a catalog is read through Spark"
        found = spark.sql(f"SELECT consumer_group FROM {ledger.qualified(table)} {which}").toArrow()
    names: list[str] = found.column("consumer_group").to_pylist()
    return names
