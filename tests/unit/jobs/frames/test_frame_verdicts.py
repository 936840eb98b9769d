"""What a function's frame says of a batch: one verdict for each message, whatever its rows are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.frames.frame_verdicts import NO_ROW, frame_verdicts
from jobs.handler.results import with_outcomes
from jobs.handler.verdicts import Outcome
from jobs.redelivery.retry_policy import RetryPolicy

POLICY = RetryPolicy.of("1s 10s", [1_000, 5_000, 10_000, 30_000], 2)


def messages(*offsets: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([key(offset) for offset in offsets])


def key(offset: int) -> dict[str, Any]:
    return {"topic": "t", "broker_name": "b", "queue_id": 0, "queue_offset": offset, "attempt": 1}


def row(
    offset: int, verdict: str | None, delay: str | int | None = None, reason: str | None = None
) -> dict[str, Any]:
    return {**key(offset), "verdict": verdict, "delay": delay, "reason": reason}


def read(rows: list[dict[str, Any]], *offsets: int) -> list[tuple[Any, ...]]:
    """Verdict, delay level and reason of each message."""
    names = [*key(0), "verdict", "delay", "reason"]
    table = pa.table({name: [each[name] for each in rows] for name in names})
    columns = frame_verdicts(table, messages(*offsets), POLICY)
    if not columns:
        return [("ACK", None, None)] * len(offsets)
    found = [columns[name] for name in ("verdict", "delay_level", "reason")]
    assert all(column is not None and len(column) == len(offsets) for column in found)
    return list(zip(*(column.to_pylist() for column in found if column is not None), strict=True))


def test_rows_in_any_order_are_the_verdicts_of_their_messages() -> None:
    rows = [
        row(9, "DEAD", reason="negative"),
        row(7, "ACK"),
        row(8, "RETRY", "6s", "later"),
        row(6, None),
        row(5, "RETRY"),
    ]
    assert read(rows, 5, 6, 7, 8, 9) == [
        ("RETRY", None, None),
        ("ACK", None, None),
        ("ACK", None, None),
        ("RETRY", 3, "later"),
        ("DEAD", None, "negative"),
    ]


def test_rows_that_all_acknowledge_make_no_column() -> None:
    rows = pa.table({name: [value] for name, value in row(0, "ACK").items()})
    assert frame_verdicts(rows, messages(0), POLICY) == {}


def test_a_number_is_a_delay_level() -> None:
    assert read([row(0, "RETRY", 2), row(1, "RETRY", 99)], 0, 1) == [
        ("RETRY", 2, None),
        ("RETRY", 4, None),
    ]


def test_a_message_without_a_row_and_one_with_several_come_again_with_the_reason() -> None:
    assert read([row(1, "ACK"), row(2, "ACK"), row(1, "DEAD")], 0, 1, 2) == [
        ("RETRY", None, NO_ROW),
        ("RETRY", None, "the frame has 2 rows for this message, not one"),
        ("ACK", None, None),
    ]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (row(0, "ack"), "'ack' is not a verdict"),
        (row(0, "RETRY", "soon"), "'soon' is not a duration"),
        (row(0, "RETRY", "30"), "'30' is not a duration"),
    ],
)
def test_a_row_that_is_no_verdict_costs_its_own_message_only(wrong: dict[str, Any], reason: str) -> None:
    first, second = read([wrong, row(1, "ACK")], 0, 1)
    assert (first[0], first[1], second) == ("RETRY", None, ("ACK", None, None))
    assert reason in first[2]


def test_a_level_below_the_first_is_no_delay() -> None:
    ((verdict, level, reason),) = read([row(0, "RETRY", 0)], 0)
    assert (verdict, level, reason) == ("RETRY", None, "0 is not a delay level: levels start at 1")


def test_the_delay_of_what_does_not_come_again_is_not_looked_at() -> None:
    assert read([row(0, "ACK", "soon"), row(1, "DEAD", "soon")], 0, 1) == [
        ("ACK", None, None),
        ("DEAD", None, None),
    ]


@pytest.mark.parametrize("stranger", [row(4, "ACK"), {**row(1, "ACK"), "topic": None}])
def test_a_row_of_no_message_refuses_the_whole_frame(stranger: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a row of no message of the batch: topic"):
        read([row(0, "ACK"), row(1, "ACK"), stranger], 0, 1)


def test_decided_verdicts_are_found_by_message_and_what_was_not_decided_comes_again() -> None:
    others = {1: Outcome("DEAD", reason="no")}
    decided = DecidedVerdicts(messages(5, 6, 7), with_outcomes(3, [1, 1, 2], [3, 3, 4], others))
    seen = decided.of(messages(7, 6, 8, 5))
    assert seen.verdict is not None
    assert seen.reason is not None
    assert seen.verdict.to_pylist() == ["ACK", "DEAD", "RETRY", "ACK"]
    assert seen.reason.to_pylist() == [None, "no", NO_ROW, None]
    assert seen.started_at.cast(pa.int64()).to_pylist()[:2] == [2, 1]
    assert seen.rows == 4
