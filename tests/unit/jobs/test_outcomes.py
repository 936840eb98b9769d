"""Rows of `deliveries` made from messages: keys, attempts, what is kept, what comes again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from delta_tables.deliveries import DELIVERIES
from jobs.handler_loader import HandlerTarget
from jobs.outcomes import Mode, OutcomeTask
from jobs.retry_policy import RetryPolicy
from lakemq.handler import DeliveredMessage, Verdict

POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 2)
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("message_id", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("tags", pa.string()),
        ("body", pa.binary()),
        ("born_timestamp", pa.timestamp("us", "UTC")),
        ("store_timestamp", pa.timestamp("us", "UTC")),
        ("reconsume_times", pa.int32()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("flag", pa.int32()),
    ]
)


def obey(message: DeliveredMessage) -> Verdict | None:
    """Does what the body says."""
    order = json.loads(message.body)
    if order.get("raise"):
        raise RuntimeError(order["raise"])
    if "dead" in order:
        return Verdict.dead(order["dead"])
    if "expect_position" in order:
        assert [message.topic, message.queue_id, message.queue_offset, message.attempt] == order[
            "expect_position"
        ]
    return None


def message(offset: int, order: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 1,
        "queue_offset": offset,
        "message_id": f"ID{offset}",
        "keys": ["k"],
        "tags": None,
        "body": json.dumps(order or {}).encode(),
        "born_timestamp": NOW,
        "store_timestamp": NOW,
        "reconsume_times": 0,
        "properties": [("colour", "red")],
        "flag": 7,
    } | fields


def retried(offset: int, origin: int, times: int, order: dict[str, Any] | None = None) -> dict[str, Any]:
    return message(
        offset,
        order,
        topic="%RETRY%g",
        queue_id=0,
        reconsume_times=times,
        message_id=f"ID{origin}",
        properties=[("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", f"broker-a/1/{origin}"), ("colour", "red")],
    )


def outcomes(*batches: list[dict[str, Any]], mode: Mode = "concurrent") -> list[dict[str, Any]]:
    task = OutcomeTask("g", HandlerTarget(f"{__name__}:obey"), POLICY, mode, "query-1", 5)
    rows: Iterator[pa.RecordBatch] = task(pa.RecordBatch.from_pylist(b, SCHEMA) for b in batches)
    made = list(rows)
    assert all(batch.schema.equals(DELIVERIES.arrow_schema) for batch in made)
    return [row for batch in made for row in batch.to_pylist()]


def test_an_acknowledged_message_keeps_its_key_and_not_its_body() -> None:
    (row,) = outcomes([message(3)])
    assert [row[name] for name in DELIVERIES.key] == ["g", "orders", "broker-a", 1, 3, 1]
    assert (row["source_topic"], row["source_queue_id"], row["source_queue_offset"]) == ("orders", 1, 3)
    assert (row["verdict"], row["query_id"], row["batch_id"]) == ("ACK", "query-1", 5)
    assert row["body"] is row["properties"] is row["flag"] is row["next_attempt_at"] is None


def test_body_and_properties_are_kept_of_those_not_acknowledged_only() -> None:
    rows = outcomes([message(0), message(1, {"raise": "x"}), message(2, {"dead": "bad"})])
    assert [row["verdict"] for row in rows] == ["ACK", "RETRY", "DEAD"]
    assert [row["body"] is None for row in rows] == [True, False, False]
    assert rows[1]["properties"] == [("colour", "red")] and rows[1]["flag"] == 7
    assert rows[2]["reason"] == "bad" and rows[2]["next_attempt_at"] is None


def test_the_next_attempt_is_due_after_the_delay_of_this_attempt() -> None:
    (first,) = outcomes([message(0, {"raise": "x"})])
    (second,) = outcomes([retried(0, 0, 1, {"raise": "x"})])
    assert (first["delay_level"], second["delay_level"]) == (2, 3)
    assert first["next_attempt_at"] - first["finished_at"] == timedelta(seconds=10)
    assert second["next_attempt_at"] - second["finished_at"] == timedelta(seconds=30)


def test_a_retried_message_is_keyed_by_its_original_position() -> None:
    (row,) = outcomes([retried(40, 3, 1, {"expect_position": ["orders", 1, 3, 2]})])
    assert row["verdict"] == "ACK"
    assert [row[name] for name in DELIVERIES.key] == ["g", "orders", "broker-a", 1, 3, 2]
    assert (row["source_topic"], row["source_queue_id"], row["source_queue_offset"]) == ("%RETRY%g", 0, 40)


def test_attempts_used_up_make_a_message_dead_with_its_last_error() -> None:
    (row,) = outcomes([retried(41, 3, 2, {"raise": "still broken"})])
    assert (row["attempt"], row["verdict"], row["delay_level"]) == (3, "DEAD", None)
    assert row["error_text"] == "still broken"
    assert row["reason"] == "attempts used up (max reconsume times 2)"


def test_first_deliveries_and_retries_mix_in_one_batch() -> None:
    rows = outcomes([message(9), retried(1, 4, 1), message(10)])
    assert [(r["topic"], r["queue_offset"], r["attempt"]) for r in rows] == [
        ("orders", 9, 1),
        ("orders", 4, 2),
        ("orders", 10, 1),
    ]


def test_a_message_another_program_put_on_the_retry_topic_stands_where_it_is() -> None:
    (row,) = outcomes([message(2, topic="%RETRY%g", queue_id=0, reconsume_times=1)])
    assert [row[name] for name in DELIVERIES.key] == ["g", "%RETRY%g", "broker-a", 0, 2, 2]


def test_a_delayed_message_put_twice_is_handled_once() -> None:
    rows = outcomes(
        [retried(1, 4, 1), retried(2, 5, 1), retried(3, 4, 1)], [retried(4, 5, 1), retried(5, 4, 2)]
    )
    assert [(r["queue_offset"], r["attempt"]) for r in rows] == [(4, 2), (5, 2), (4, 3)]


def test_broadcast_mode_drops_what_fails() -> None:
    rows = outcomes([message(0), message(1, {"raise": "x"}), message(2, {"dead": "y"})], mode="broadcast")
    assert [row["verdict"] for row in rows] == ["ACK", "DROPPED", "DROPPED"]
    assert all(row["next_attempt_at"] is None for row in rows)


def test_an_empty_batch_gives_no_rows() -> None:
    assert outcomes([]) == []


def test_a_message_without_room_for_a_retrys_properties_is_given_up_with_that_reason() -> None:
    full = {"properties": [("long", "x" * 32_200)]}
    rows = outcomes([message(0, {"raise": "x"}, **full), message(1, {"raise": "x"}), message(2, **full)])
    assert [row["verdict"] for row in rows] == ["DEAD", "RETRY", "ACK"]
    assert rows[0]["reason"].startswith("its properties leave no room") and rows[0]["error_text"] == "x"
    assert rows[0]["next_attempt_at"] is rows[0]["delay_level"] is None
    assert rows[0]["properties"] == full["properties"]


def test_a_message_that_had_room_at_its_first_attempt_has_it_at_the_next() -> None:
    added = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/0"), ("ORIGIN_MESSAGE_ID", "ID0")]
    verdicts = []
    for size in range(31_900, 32_101, 5):
        long = [("long", "x" * size)]
        again = retried(9, 0, 1, {"raise": "x"}) | {"properties": [*added, *long]}
        first, second = outcomes([message(0, {"raise": "x"}, properties=long), again])
        assert first["verdict"] == second["verdict"]
        verdicts.append(first["verdict"])
    assert (verdicts[0], verdicts[-1]) == ("RETRY", "DEAD")
