"""P20: what a look-up in a long ledger takes, by key, message id and position, as `lakemq sql` answers it.

Owns the ledger, written as group jobs leave it and maintained once, and how a look-up is timed: the whole
command, a new process each time. Keys are drawn at random, and ids are those of two brokers, so that neither
goes up with the time: minimum and maximum of the files tell nothing.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from benchmarks.ledger import BATCH_ROWS
from benchmarks.measurement import Comparison, Measurement
from benchmarks.scale import Scale
from delta_tables.deliveries import ACK, DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.maintenance import maintain
from delta_tables.views import TABLES
from tests.support.peer_jars import REPOSITORY

SHORT_ROWS: Final = 100_000
LIMIT_S: Final = 2.0
QUEUES: Final = 4
KEYS_OF_TWO: Final = 4
"""Every so many messages one has two keys."""
HEX: Final = 32
BROKERS: Final = ("F4C247935DC942660000", "7F0000011A2B3C4D0000")
APART_US: Final = 300_000

QUESTIONS: Final = {
    "key": "SELECT finished_at, message_id, verdict FROM deliveries_by_key WHERE key = '{key}'",
    "message-id": "SELECT event_at, event FROM message_trace WHERE message_id = '{message_id}'",
    "position": (
        "SELECT state, attempt_count FROM delivery_history "
        "WHERE topic = 'orders' AND queue_id = {queue_id} AND queue_offset = {queue_offset}"
    ),
}


def look_ups(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P20."""
    long = _Ledger(directory / "long", scale.looked_up_rows)
    short = _Ledger(directory / "short", SHORT_ROWS)
    said = f"{scale.looked_up_rows:,} rows in deliveries, a whole process"
    for name in QUESTIONS:
        limit = Measurement("P20", f"by-{name}", LIMIT_S, "s", said, "", at_most=True, relation="value")
        yield Comparison(limit, partial(long.ask, name), None)
        grown = Measurement("P20", f"by-{name}-growth", None, "s", said, f"{SHORT_ROWS:,} rows", at_most=True)
        yield Comparison(grown, partial(long.ask, name), partial(short.ask, name))


class _Ledger:
    """A ledger that was maintained, and rows of it to ask for."""

    def __init__(self, directory: Path, rows: int) -> None:
        self._directory = directory
        self._rows = rows
        self._runs = itertools.count()
        ledger = PathLedger(directory.absolute())
        ledger.create(*TABLES)
        for first in range(0, rows, BATCH_ROWS):
            write_deltalake(
                str(ledger.path(DELIVERIES)), history(first, min(BATCH_ROWS, rows - first)), mode="append"
            )
        maintain(ledger)

    def ask(self, name: str) -> float:
        """Looks another row up, and returns the seconds of the command."""
        number = Random(next(self._runs)).randrange(self._rows)
        (row,) = (
            LedgerReader(self._directory)
            .sql(
                "SELECT keys, message_id, queue_id, queue_offset FROM deliveries "
                f"WHERE queue_id = {number % QUEUES} AND queue_offset = {number // QUEUES}"
            )
            .to_pylist()
        )
        question = QUESTIONS[name].format(**row, key=row["keys"][-1])
        command = [sys.executable, "-m", "lakemq.cli", "sql", question, "--ledger", str(self._directory)]
        began = time.perf_counter()
        said = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
        took = time.perf_counter() - began
        if "(1 row)" not in said:
            raise RuntimeError(f"{question} found something else: {said}")
        return took


def history(first: int, rows: int) -> pa.Table:
    """Builds first deliveries of a topic's queues, as batches of a group job leave them.

    Args:
        first: The number of the first one.
        rows: How many.
    """
    numbers = range(first, first + rows)
    number = pa.array(numbers, pa.int64())
    offset = pc.divide(number, QUEUES)
    begin_us = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
    at = pc.add(pc.multiply(number, APART_US), begin_us).cast(pa.timestamp("us", "UTC"))
    ends = [0, *itertools.accumulate(2 if each % KEYS_OF_TWO == 0 else 1 for each in numbers)]
    drawn = Random(first).randbytes(ends[-1] * HEX // 2).hex()
    queue = pc.subtract(number, pc.multiply(offset, QUEUES)).cast(pa.int32())
    ids = "".join(f"{BROKERS[each % 2]}{each:012X}" for each in numbers)
    own: dict[str, Any] = {
        "queue_id": queue,
        "queue_offset": offset,
        "source_queue_id": queue,
        "source_queue_offset": offset,
        "message_id": _texts(ids),
        "keys": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _texts(drawn)),
        **dict.fromkeys(("started_at", "finished_at", "born_timestamp", "store_timestamp"), at),
    }
    same: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "broker_name": "broker-a",
        "attempt": 1,
        "verdict": ACK,
        "source_topic": "orders",
        "worker": "bench",
        "query_id": "bench",
        "batch_id": first // BATCH_ROWS,
    }
    columns = [
        own[field.name] if field.name in own else pa.repeat(pa.scalar(same.get(field.name), field.type), rows)
        for field in DELIVERIES.arrow_schema
    ]
    return pa.table(columns, schema=DELIVERIES.arrow_schema)


def _texts(joined: str) -> pa.Array:
    """Texts of 32 characters each out of one."""
    count = len(joined) // HEX
    ends = pa.array(range(0, len(joined) + 1, HEX), pa.int32()).buffers()[1]
    return pa.StringArray.from_buffers(count, ends, pa.py_buffer(joined.encode()))
