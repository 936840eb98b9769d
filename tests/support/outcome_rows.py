"""Messages with an order in their bodies, and the rows of `deliveries` that a group makes of them.

Owns the handlers that obey, the messages, as first deliveries and on the retry topic, and the calls of the
outcome task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from delta_tables.deliveries import DELIVERIES
from jobs.group.outcomes import OutcomeTask
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from lakemq.handler import DeliveredMessage, Outgoing, Verdict

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


def send(message: DeliveredMessage) -> Verdict:
    """Sends what the body says, topic by topic."""
    return Verdict.ack(send=[Outgoing(topic, message.text) for topic in json.loads(message.body)["send"]])


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


OBEY, SEND = HandlerTarget(f"{__name__}:obey"), HandlerTarget(f"{__name__}:send")


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


def retried(
    offset: int, origin: int, times: int, order: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    origins = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", f"broker-a/1/{origin}"), ("colour", "red")]
    made = message(
        offset,
        order,
        topic="%RETRY%g",
        queue_id=0,
        reconsume_times=times,
        message_id=f"ID{origin}",
        properties=origins,
    )
    return made | fields


def outcomes(*batches: list[dict[str, Any]], mode: Mode = "concurrent") -> list[dict[str, Any]]:
    task = OutcomeTask("g", OBEY, POLICY, mode, "query-1", 5)
    rows: Iterator[pa.RecordBatch] = task(pa.RecordBatch.from_pylist(b, SCHEMA) for b in batches)
    made = list(rows)
    assert all(batch.schema.equals(DELIVERIES.arrow_schema) for batch in made)
    return [row for batch in made for row in batch.to_pylist()]


def forged(offset: int, origin: str, times: int = 1, **fields: Any) -> dict[str, Any]:
    """A message somebody else put on the retry topic."""
    fields.setdefault("properties", [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", origin)])
    return retried(offset, 0, times) | fields


def decided(
    function: Any,
    messages: list[dict[str, Any]],
    *,
    mode: Mode = "concurrent",
    policy: RetryPolicy = POLICY,
) -> list[dict[str, Any]]:
    """Rows made with a vectorised handler."""

    class Target:
        def load(self) -> LoadedHandler:
            return LoadedHandler(function, True)

    task = OutcomeTask("g", Target(), policy, mode, "query-1", 5)  # type: ignore[arg-type]
    return [
        row for made in task(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)])) for row in made.to_pylist()
    ]


def keyed(row: dict[str, Any], key: str) -> dict[str, Any]:
    return row | {"properties": [*row["properties"], ("LMQ_SHARDING_KEY", key)]}


def attempt_at(offset: int, attempt: int = 1) -> tuple[str, str, int, int, int]:
    return "orders", "broker-a", 1, offset, attempt
