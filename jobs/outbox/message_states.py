"""Which messages of a batch's rows were sent before, and which were given up.

Owns the lookup in `sent_messages` and `discarded_sends`.

Invariants: rows are marked, not left out: the borders of the requests follow from all of a batch's messages.
The rows' own keys are looked up before anything is written: an append that read the table would conflict with
every other group's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_tables.deliveries import DELIVERY_KEY
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.known_keys import known_rows
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.table import Table

_ATTEMPT = DELIVERY_KEY[1:]
_TYPES = "topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, attempt INT"
_COUNT = "SELECT count(*) AS found FROM {table} WHERE consumer_group = '{group}' AND {condition}"

Attempt = tuple[Any, ...]


class MessageStates:
    """The lookup for one batch of the stream.

    Args:
        spark: the session, for a ledger in a catalog.
        ledger: where the tables are.
        group: the group.
        rows: rows of `deliveries`, all of the group.
        batches: the batches of the group job that they are of: query id and number.
    """

    def __init__(
        self,
        spark: SparkSession,
        ledger: LedgerLocation,
        group: str,
        rows: DataFrame,
        batches: list[tuple[str, int]],
    ) -> None:
        self._spark = spark
        self._ledger = ledger
        self._group = group
        self._rows = rows
        queries = ", ".join(f"'{query}'" for query in sorted({query for query, _ in batches}))
        numbers = [number for _, number in batches]
        self._of_batches = f"query_id IN ({queries}) AND batch_id BETWEEN {min(numbers)} AND {max(numbers)}"
        self._attempts: set[Attempt] | None = None

    def marked(self) -> DataFrame:
        """The rows, with the numbers of their messages that were sent and that were given up by now."""
        rows = self._with(self._rows, "sent_numbers", SENT_MESSAGES, self._of_batches)
        return self._with(rows, "given_up_numbers", DISCARDED_SENDS, "true")

    def _with(self, rows: DataFrame, column: str, table: Table, condition: str) -> DataFrame:
        found = self._found(table) if self._has(table, condition) else []
        if not found:
            return rows.withColumn(column, F.lit(None).cast("array<int>"))
        known = rows.sparkSession.createDataFrame(found, f"{_TYPES}, {column} ARRAY<INT>")
        return rows.join(F.broadcast(known), [*_ATTEMPT], "left")

    def _has(self, table: Table, condition: str) -> bool:
        """Whether to look closer: most batches are new."""
        text = _COUNT.format(table=table.name, group=self._group, condition=condition)
        ((found,),) = select(self._ledger, text, self._spark)
        return bool(found)

    def _found(self, table: Table) -> list[tuple[Any, ...]]:
        if self._attempts is None:
            keys = self._rows.select(*_ATTEMPT).toArrow().to_pylist()
            self._attempts = {tuple(key.values()) for key in keys}
        positions = (attempt[:4] for attempt in self._attempts)
        columns = (*_ATTEMPT, "number")
        numbers: dict[Attempt, list[int]] = defaultdict(list)
        for *attempt, number in known_rows(self._spark, self._ledger, table, self._group, positions, columns):
            if tuple(attempt) in self._attempts:
                numbers[tuple(attempt)].append(number)
        return [(*attempt, sorted(listed)) for attempt, listed in sorted(numbers.items())]
