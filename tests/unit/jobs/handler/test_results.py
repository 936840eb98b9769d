"""Results of rows as columns: each of them in its row, with its column's type, and none that says nothing."""

from __future__ import annotations

import pyarrow as pa

from delta_tables.table import OUTBOX
from jobs.handler.results import TIME, HandlerResults, with_outcomes
from jobs.handler.verdicts import Outcome

SENT = {**dict.fromkeys(field.name for field in OUTBOX.value_type), "topic": "copies", "body": b"x"}


def found() -> HandlerResults:
    """Three rows: one that is acknowledged, sends and writes, one acknowledged, one that comes again."""
    others = {0: Outcome("ACK", outbox=(SENT,), table_rows=b"packed"), 2: Outcome("RETRY", 4, "later")}
    return with_outcomes(3, [1, None, 3], [10, 20, 30], others)


def test_what_is_sent_stands_in_its_row() -> None:
    results = found()
    assert results.outbox is not None
    assert results.outbox.type == OUTBOX
    assert results.outbox.to_pylist() == [[SENT], None, None]
    assert results.table_rows is not None
    assert results.table_rows.to_pylist() == [b"packed", None, None]


def test_where_nothing_is_sent_there_is_no_column_of_it() -> None:
    assert with_outcomes(1, [1], [2], {0: Outcome("RETRY")}).outbox is None


def test_the_results_of_some_rows_are_theirs_in_the_order_they_are_asked_for() -> None:
    results = found()
    taken = results.take(pa.array([2, 0], pa.int32()))
    assert taken.rows == 2
    for name in vars(results).keys() - {"rows"}:
        before, after = getattr(results, name), getattr(taken, name)
        if before is None:
            assert after is None, f"{name} says nothing still"
        else:
            rows = before.to_pylist()
            assert after.to_pylist() == [rows[2], rows[0]]
            assert after.type == before.type
    assert taken.started_at.type == TIME
    assert results.take(pa.array([], pa.int32())).rows == 0
