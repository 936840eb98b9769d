"""What a vectorised handler returned, as columns.

Owns the shapes it may have (docs/ledger.md). Pure.

Invariants: one verdict per row, or a failure of the whole call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.deliveries import ACK, DEAD, RETRY
from jobs.handler import reasons
from jobs.handler.results import Columns, columns_of
from jobs.handler.verdicts import outcome_of
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import Verdict

_KINDS = pa.array([ACK, RETRY, DEAD])


def batch_verdicts(result: Any, rows: int, policy: RetryPolicy) -> Columns:
    """Reads what a vectorised handler returned.

    Args:
        result: What it returned.
        rows: How many messages it was given.
        policy: For delays a verdict names.

    Returns:
        Columns of `HandlerResults`; none where every row is acknowledged.

    Raises:
        TypeError, ValueError: It is of no known shape, or not one verdict per message.
    """
    if result is None:
        return {}
    if isinstance(result, Verdict):
        if result.send or result.rows:
            raise ValueError(
                "a verdict that sends messages or writes rows is one message's: return a list, a verdict for "
                "each"
            )
        result = [result] * rows
    if isinstance(result, (pa.Array, pa.ChunkedArray)) and not pa.types.is_struct(result.type):
        return _of_columns(result, None, None, rows, policy)
    if isinstance(result, (pa.RecordBatch, pa.Table)):
        columns = {name: result.column(name) for name in result.schema.names}
    elif isinstance(result, pa.StructArray):
        # flatten(), unlike field(), knows of the nulls of the struct itself.
        names = [result.type[i].name for i in range(result.type.num_fields)]
        columns = dict(zip(names, result.flatten(), strict=True))
    elif isinstance(result, Sequence) and not isinstance(result, (str, bytes)):
        return _of_sequence(result, rows, policy)
    else:
        raise TypeError(f"a vectorised handler returns verdicts, not {type(result).__name__}")
    unknown = columns.keys() - {"verdict", "delay_level", "reason"}
    if unknown or "verdict" not in columns:
        raise TypeError(
            f"verdict columns are verdict, delay_level and reason, not {', '.join(sorted(columns))}"
        )
    return _of_columns(columns["verdict"], columns.get("delay_level"), columns.get("reason"), rows, policy)


def _of_sequence(result: Sequence[Any], rows: int, policy: RetryPolicy) -> Columns:
    answers = list(result)  # foreign code again: what it gives counts, not what it says of its length
    if len(answers) != rows:
        raise ValueError(f"the handler returned {len(answers)} verdicts for {rows} messages")
    others = {
        row: outcome_of(Verdict(verdict) if isinstance(verdict, str) else verdict, policy)
        for row, verdict in enumerate(answers)
        if verdict is not None
        and verdict is not Verdict.ACK
        and not (type(verdict) is str and verdict == ACK)
    }
    return columns_of(others, rows)


def _of_columns(
    verdict: pa.Array | pa.ChunkedArray,
    delay_level: pa.Array | pa.ChunkedArray | None,
    reason: pa.Array | pa.ChunkedArray | None,
    rows: int,
    policy: RetryPolicy,
) -> Columns:
    if len(verdict) != rows:
        raise ValueError(f"the handler returned {len(verdict)} verdicts for {rows} messages")
    kinds = pc.fill_null(_flat(verdict, pa.string()), ACK)
    if pc.all(pc.equal(kinds, ACK)).as_py():
        return {}
    known = pc.is_in(kinds, value_set=_KINDS)
    if not pc.all(known).as_py():
        wrong = kinds.filter(pc.invert(known))[0].as_py()
        raise ValueError(f"{wrong!r} is not a verdict: ACK, RETRY or DEAD")
    levels = None
    if delay_level is not None:
        longest = pa.scalar(len(policy.level_ms), pa.int32())
        levels = pc.max_element_wise(pc.min_element_wise(_flat(delay_level, pa.int32()), longest), 1)
        levels = pc.if_else(_flat(pc.is_valid(delay_level), pa.bool_()), levels, None).cast(pa.int32())
    texts = None
    if reason is not None:
        texts = pc.utf8_slice_codeunits(_flat(reason, pa.string()), 0, reasons.MAX_REASON)
    return {"verdict": kinds, "delay_level": levels, "reason": texts}


def _flat(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole.validate(full=True)  # text made from buffers may be no UTF-8, which no reader of the table takes
    return whole.cast(wanted)
