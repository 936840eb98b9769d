"""Rows of `deliveries` made from messages: whose they are, wherever a message was read."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.deliveries import DELIVERIES
from jobs.group.handled_messages import without_repeats
from tests.support.outcome_rows import SCHEMA, decided, forged, message, outcomes, retried


def test_a_retried_message_is_keyed_by_its_original_position() -> None:
    (row,) = outcomes([retried(40, 3, 1, {"expect_position": ["orders", 1, 3, 2]})])
    assert row["verdict"] == "ACK"
    assert [row[name] for name in DELIVERIES.key] == ["g", "orders", "broker-a", 1, 3, 2]
    assert (row["source_topic"], row["source_queue_id"], row["source_queue_offset"]) == ("%RETRY%g", 0, 40)


def test_a_message_another_program_put_on_the_retry_topic_is_keyed_by_its_own_position() -> None:
    (row,) = outcomes([message(2, topic="%RETRY%g", queue_id=0, reconsume_times=1)])
    assert [row[name] for name in DELIVERIES.key] == ["g", "%RETRY%g", "broker-a", 0, 2, 2]


def test_a_delayed_message_put_twice_is_handled_once() -> None:
    rows = outcomes(
        [retried(1, 4, 1), retried(2, 5, 1), retried(3, 4, 1)], [retried(4, 5, 1), retried(5, 4, 2)]
    )
    assert [(r["queue_offset"], r["attempt"]) for r in rows] == [(4, 2), (5, 2), (4, 3)]
    seen: set[tuple[str, int]] = set()
    alone = (pa.RecordBatch.from_pylist([retried(offset, 4, 1)], SCHEMA) for offset in (1, 2))
    assert [without_repeats(batch, "g", seen).num_rows for batch in alone] == [1, 0]


@pytest.mark.parametrize(
    "origin",
    [
        "broker-a/2147483648/3",
        "broker-a/99999999999/3",
        "broker-a/1/9223372036854775808",
        "broker-a/1/" + "9" * 19,
        "broker-a/1/" + "9" * 40,
        "broker-a/01/3",
        "broker-a/1/03",
        "broker-a/-1/3",
        "broker-a/1/\u0663",
        "/1/3",
        "",
    ],
)
def test_an_origin_beyond_all_positions_is_none(origin: str) -> None:
    for order in ({}, {"raise": "x"}):
        row, good = outcomes([forged(40, origin, body=json.dumps(order).encode()), retried(41, 3, 1)])
        assert [row[name] for name in DELIVERIES.key] == ["g", "%RETRY%g", "broker-a", 0, 40, 2]
        assert [good[name] for name in DELIVERIES.key] == ["g", "orders", "broker-a", 1, 3, 2]


def test_the_greatest_position_is_an_origin() -> None:
    (row,) = outcomes([forged(40, "broker-a/2147483647/9223372036854775807")])
    assert (row["topic"], row["queue_id"], row["queue_offset"]) == ("orders", 2**31 - 1, 2**63 - 1)


def test_an_origin_without_a_topic_is_none() -> None:
    for properties in ([("LMQ_ORIGIN", "b/1/3"), ("RETRY_TOPIC", "")], [("LMQ_ORIGIN", "b/1/3")], None):
        (row,) = outcomes([forged(40, "", properties=properties)])
        assert (row["topic"], row["queue_offset"]) == ("%RETRY%g", 40)


@pytest.mark.parametrize("times", [0, -1, -(2**31)])
@pytest.mark.parametrize("order", [{}, {"raise": "x"}])
def test_a_first_attempt_on_the_retry_topic_takes_nobodys_key(times: int, order: dict[str, Any]) -> None:
    row, good = outcomes([retried(40, 3, times, order), message(3)])
    assert [row[name] for name in DELIVERIES.key] == ["g", "%RETRY%g", "broker-a", 0, 40, 1]
    assert [good[name] for name in DELIVERIES.key] == ["g", "orders", "broker-a", 1, 3, 1]
    assert row["delay_level"] == (2 if order else None)


def test_a_message_read_at_its_place_is_no_repeat_of_one_on_the_retry_topic() -> None:
    at_its_place = message(4, reconsume_times=1)
    assert len(outcomes([at_its_place, retried(1, 4, 1)])) == 2


def test_a_handler_sees_the_position_a_message_had_at_first() -> None:
    seen: list[dict[str, Any]] = []
    decided(lambda batch: seen.extend(batch.to_pylist()), [forged(40, "broker-b/2/3"), message(9)])
    names = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")
    assert [tuple(row[name] for name in names) for row in seen] == [
        ("orders", "broker-b", 2, 3, 2),
        ("orders", "broker-a", 1, 9, 1),
    ]
