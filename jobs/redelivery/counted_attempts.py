"""Which of a message's failed attempts count towards its limit, and whether a lane waits for the next one.

Owns the properties that carry it on the retry topic.

Invariants: an attempt that failed only together with other messages says nothing about this one, so it does
not count, and neither does one that was put off, which the delays do not grow by either; a message known to
fail by itself is handled by itself. The properties are those of the ledger's
row, so the retry job sends them without knowing of them.

Processes: executors.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import ORDERLY_PROPERTY
from jobs.redelivery.original_position import Positions
from store_native.names import retry_topic

UNCOUNTED = "LMQ_UNCOUNTED"
PUT_OFF_TIMES = "LMQ_PUT_OFF"
ALONE = "LMQ_ALONE"
MARKS = (UNCOUNTED, PUT_OFF_TIMES, ALONE, ORDERLY_PROPERTY)

_COUNT = r"^(?P<count>\d{1,9})$"


@dataclass(frozen=True)
class AttemptCounts:
    """What each row of a batch has behind it before its attempt.

    Attributes:
        attempt: 1 for the first delivery.
        uncounted: how many earlier attempts failed only in company or were put off.
        put_off: how many of these were put off.
        isolated: whether the last attempt failed in a call of the message's own.
    """

    attempt: pa.Array
    uncounted: pa.Array
    put_off: pa.Array
    isolated: pa.Array

    @property
    def counted(self) -> pa.Array:
        """The attempt's number when those that do not count are left out."""
        return pc.subtract(self.attempt, self.uncounted)

    @property
    def begun(self) -> pa.Array:
        """The attempt's number when those that were put off are left out."""
        return pc.subtract(self.attempt, self.put_off)

    def take(self, rows: pa.Array) -> AttemptCounts:
        """Those of some rows, in their order."""
        return AttemptCounts(**{name: column.take(rows) for name, column in vars(self).items()})


def attempt_counts(batch: pa.RecordBatch, positions: Positions, group: str) -> AttemptCounts:
    """Reads the marks of the rows that come from the group's retry topic."""
    rows = batch.num_rows
    from_retry = pc.equal(batch.column("topic"), retry_topic(group))
    if rows == 0 or not pc.any(from_retry).as_py():
        none = pa.repeat(pa.scalar(0, pa.int32()), rows)
        return AttemptCounts(positions.attempt, none, none, pa.repeat(pa.scalar(False), rows))
    properties = batch.column("properties")

    def count(name: str, most: pa.Array) -> pa.Array:
        found = pc.struct_field(pc.extract_regex(_lookup(properties, name), _COUNT), "count")
        said = pc.fill_null(pc.if_else(from_retry, found.cast(pa.int32()), None), 0)
        return pc.max_element_wise(pc.min_element_wise(said, most), 0)

    # Nobody's message gets more attempts than it failed in company.
    uncounted = count(UNCOUNTED, pc.subtract(positions.attempt, pa.scalar(1, pa.int32())))
    put_off = count(PUT_OFF_TIMES, uncounted)
    alone = pc.and_(from_retry, pc.fill_null(pc.equal(_lookup(properties, ALONE), "1"), False))
    return AttemptCounts(positions.attempt, uncounted, put_off, alone)


def marked(
    properties: pa.MapArray, uncounted: pa.Array, put_off: pa.Array, isolated: pa.Array, suspends: pa.Array
) -> pa.MapArray:
    """The properties of failed rows with this attempt's marks in place of the earlier ones.

    Args:
        properties: the messages' properties.
        uncounted: per row, the attempts that do not count, this one included.
        put_off: per row, how many of these were put off.
        isolated: per row, whether it failed in a call of its own.
        suspends: per row, whether its lane waits for the next attempt.
    """
    there = pc.any(pc.is_in(properties.keys, value_set=pa.array(MARKS))).as_py()
    new = pc.or_(pc.or_(isolated, suspends), pc.greater(uncounted, 0))
    if not (there or pc.any(new).as_py()):
        return properties
    made = []
    marks = (column.to_pylist() for column in (uncounted, put_off, isolated, suspends))
    for pairs, count, late, alone, lane_waits in zip(properties.to_pylist(), *marks, strict=True):
        row = [(name, value) for name, value in pairs or () if name not in MARKS]
        row += [(UNCOUNTED, str(count))] if count else []
        row += [(PUT_OFF_TIMES, str(late))] if late else []
        row += [(ALONE, "1")] if alone else []
        row += [(ORDERLY_PROPERTY, "1")] if lane_waits else []
        made.append(None if pairs is None and not row else row)
    return pa.array(made, properties.type)


def _lookup(properties: pa.MapArray, name: str) -> pa.Array:
    return pc.map_lookup(properties, pa.scalar(name), "first")
