"""The messages of a batch's verdicts as they will be sent: ids, causes, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from delta_tables.table import OUTBOX
from jobs.group.addressing import Acceptance, addressed, sent_id
from jobs.redelivery.original_position import Positions

ACCEPTS = Acceptance(frozenset(["invoices", "audit"]), largest_body=1_000)
KEY = ("g", "orders", "broker-a", 1, 7, 2)


def outgoing(topic: str = "invoices", **fields: Any) -> dict[str, Any]:
    return {
        "topic": topic,
        "keys": ["17"],
        "tags": None,
        "properties": [("colour", "red")],
        "sharding_key": None,
        "delay_level": 0,
        "body": b"b",
    } | fields


def address(*rows: list[dict[str, Any]] | None, ids: list[str] | None = None) -> tuple[list[Any], list[Any]]:
    count = len(rows)
    positions = Positions(
        pa.array([KEY[1]] * count),
        pa.array([KEY[2]] * count),
        pa.array([KEY[3]] * count, pa.int32()),
        pa.array([KEY[4] + row for row in range(count)], pa.int64()),
        pa.array([KEY[5]] * count, pa.int32()),
    )
    message_ids = pa.array(ids or [f"ID{row}" for row in range(count)], pa.string())
    made, refused = addressed(pa.array(rows, OUTBOX), message_ids, positions, "g", ACCEPTS)
    assert made.type == OUTBOX
    return made.to_pylist(), refused.to_pylist()


def test_a_message_has_an_id_of_its_delivery_and_says_what_caused_it() -> None:
    (messages,), refused = address([outgoing(), outgoing("audit")])
    assert refused == [None]
    assert [message["message_id"] for message in messages] == [sent_id(KEY, 1), sent_id(KEY, 2)]
    assert messages[0]["properties"] == [("colour", "red"), ("LMQ_CAUSE", "ID0"), ("LMQ_CAUSE_GROUP", "g")]
    assert (messages[1]["topic"], messages[1]["body"]) == ("audit", b"b")


def test_an_id_is_the_same_each_time_and_no_other_deliverys() -> None:
    keys = [KEY, ("h", *KEY[1:]), (*KEY[:4], 8, 2), (*KEY[:5], 3)]
    ids = [sent_id(key, number) for key in keys for number in (1, 2)]
    assert ids == [sent_id(key, number) for key in keys for number in (1, 2)]
    assert len(set(ids)) == len(ids)
    assert all(len(made) == 32 for made in ids)


def test_rows_that_send_nothing_stay_so() -> None:
    made, refused = address(None, [outgoing()], None)
    assert made[0] is made[2] is None
    assert made[1][0]["message_id"] == sent_id((*KEY[:4], 8, 2), 1)
    assert refused == [None] * 3


def test_a_topic_that_the_group_does_not_send_to_is_named() -> None:
    made, refused = address([outgoing(), outgoing("invoicse")], [outgoing()])
    assert made[0] is None
    assert refused[0] == "the group sends to audit, invoices, not to 'invoicse': name it with --send-to"
    assert (len(made[1]), refused[1]) == (1, None)


def test_a_message_whose_properties_leave_no_space_is_refused() -> None:
    made, refused = address(
        [outgoing(properties=[("long", "x" * 32_000)])], [outgoing()], ids=["I" * 300, "J"]
    )
    assert made[0] is None
    assert "properties, sharding key and id of a message to invoices take 32,255 bytes" in refused[0]
    assert refused[1] is None


def test_a_body_that_a_broker_would_not_take_is_refused() -> None:
    made, (none, first, second) = address(
        [outgoing(body=b"x" * 1_000)],
        [outgoing(body=b"x" * 1_001)],
        [outgoing(), outgoing(body=b"x" * 2_000)],
    )
    assert none is None
    assert first.startswith("the body of a message to invoices has 1,000 bytes at most, not 1,001: max_mess")
    assert second.startswith("the body of a message to invoices has 1,000 bytes at most, not 2,000")
    assert [messages is None for messages in made] == [False, True, True]
