"""Rows of `deliveries` made from messages: keys, attempts, what is kept, what comes again."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.deliveries import DELIVERIES
from jobs.group.batch_size import Handled
from jobs.group.handled_messages import without_repeats
from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.outcomes import IN_COMPANY, OutcomeTask
from jobs.group.task_part import TaskPart
from jobs.handler.invocation import HandlerHost, Isolation
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.redelivery.counted_attempts import attempt_counts
from jobs.redelivery.original_position import LAST_ATTEMPT, original_positions
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
    assert rows[1]["properties"] == [("colour", "red")]
    assert rows[1]["flag"] == 7
    assert rows[2]["reason"] == "bad"
    assert rows[2]["next_attempt_at"] is None


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


def test_broadcast_mode_drops_what_fails() -> None:
    rows = outcomes([message(0), message(1, {"raise": "x"}), message(2, {"dead": "y"})], mode="broadcast")
    assert [row["verdict"] for row in rows] == ["ACK", "DROPPED", "DROPPED"]
    assert all(row["next_attempt_at"] is None for row in rows)


def test_an_empty_batch_gives_no_rows() -> None:
    assert outcomes([]) == []


def test_a_message_without_space_for_a_retrys_properties_is_given_up_with_that_reason() -> None:
    full: dict[str, Any] = {"properties": [("long", "x" * 32_200)]}
    rows = outcomes([message(0, {"raise": "x"}, **full), message(1, {"raise": "x"}), message(2, **full)])
    assert [row["verdict"] for row in rows] == ["DEAD", "RETRY", "ACK"]
    assert rows[0]["reason"].startswith("its properties leave no space")
    assert rows[0]["error_text"] == "x"
    assert rows[0]["next_attempt_at"] is rows[0]["delay_level"] is None
    assert rows[0]["properties"] == full["properties"]


def test_a_message_that_had_space_at_its_first_attempt_has_it_at_the_next() -> None:
    added = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/0"), ("ORIGIN_MESSAGE_ID", "ID0")]
    verdicts = []
    for size in range(31_900, 32_101, 5):
        long = [("long", "x" * size)]
        again = retried(9, 0, 1, {"raise": "x"}) | {"properties": [*added, *long]}
        first, second = outcomes([message(0, {"raise": "x"}, properties=long), again])
        assert first["verdict"] == second["verdict"]
        verdicts.append(first["verdict"])
    assert (verdicts[0], verdicts[-1]) == ("RETRY", "DEAD")


def forged(offset: int, origin: str, times: int = 1, **fields: Any) -> dict[str, Any]:
    """A message somebody else put on the retry topic."""
    fields.setdefault("properties", [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", origin)])
    return retried(offset, 0, times) | fields


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


@pytest.mark.parametrize("times", [2**31 - 1, 2**31 - 2])
@pytest.mark.parametrize("order", [{}, {"raise": "x"}, {"dead": "x"}])
def test_an_attempt_beyond_all_numbers_is_the_last_one(times: int, order: dict[str, Any]) -> None:
    row, other = outcomes([retried(40, 3, times, order), retried(41, 4, 1, {"raise": "x"})])
    assert (row["queue_offset"], row["attempt"]) == (3, LAST_ATTEMPT)
    assert row["verdict"] == ("DEAD" if order else "ACK")
    assert (other["verdict"], other["attempt"], other["delay_level"]) == ("RETRY", 2, 3)


def test_the_last_attempt_is_given_up_however_few_of_them_are_said_to_count() -> None:
    said = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/3"), ("LMQ_UNCOUNTED", "999999999")]
    policy = RetryPolicy.of("10s", [1_000, 10_000], 2**31 - 1)
    task = OutcomeTask("g", HandlerTarget(f"{__name__}:obey"), policy, "concurrent", "query-1", 5)
    messages = [retried(40, 3, 2**31 - 1, {"raise": "x"}) | {"properties": said}]
    (made,) = task(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)]))
    assert made.column("verdict").to_pylist() == ["DEAD"]


@pytest.mark.parametrize("times", [0, -1, -(2**31)])
@pytest.mark.parametrize("order", [{}, {"raise": "x"}])
def test_a_first_attempt_on_the_retry_topic_takes_nobodys_key(times: int, order: dict[str, Any]) -> None:
    row, good = outcomes([retried(40, 3, times, order), message(3)])
    assert [row[name] for name in DELIVERIES.key] == ["g", "%RETRY%g", "broker-a", 0, 40, 1]
    assert [good[name] for name in DELIVERIES.key] == ["g", "orders", "broker-a", 1, 3, 1]
    assert row["delay_level"] == (2 if order else None)


@pytest.mark.parametrize(("times", "said", "held"), [(1, "400", 1), (5, "3", 3), (5, "999999999", 5)])
def test_no_more_attempts_are_left_out_of_the_count_than_there_were(times: int, said: str, held: int) -> None:
    properties = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/3"), ("LMQ_UNCOUNTED", said)]
    batch = pa.RecordBatch.from_pylist([retried(40, 3, times) | {"properties": properties}], SCHEMA)
    counts = attempt_counts(batch, original_positions(batch, "g"), "g")
    assert counts.uncounted.to_pylist() == [held]
    assert counts.counted.to_pylist() == [times + 1 - held]
    (row,) = outcomes([retried(40, 3, times, {"raise": "x"}) | {"properties": properties}])
    kept = dict(row["properties"]).get("LMQ_UNCOUNTED")
    assert (row["verdict"], kept) == (("DEAD", None) if times + 1 - held > 2 else ("RETRY", str(held)))


def test_what_is_acknowledged_keeps_no_properties_beside_a_marked_failure() -> None:
    marked = [("LMQ_UNCOUNTED", "1"), ("colour", "red")]
    rows = outcomes([message(0, properties=marked), message(1, {"raise": "x"}, properties=marked)])
    assert [row["verdict"] for row in rows] == ["ACK", "RETRY"]
    assert [row["properties"] for row in rows] == [None, [("colour", "red")]]


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


def test_a_handlers_own_reason_stays_when_attempts_are_used_up() -> None:
    (row,) = decided(lambda batch: [Verdict.retry(reason="still closed")], [retried(40, 3, 2)])
    assert (row["verdict"], row["reason"]) == ("DEAD", "still closed")


def test_the_last_attempt_but_one_is_a_retry() -> None:
    (row,) = outcomes([retried(40, 3, 1, {"raise": "x"})])
    assert (row["attempt"], row["verdict"]) == (2, "RETRY")


def test_a_message_given_up_by_its_handler_keeps_that_reason_however_large_it_is() -> None:
    full: dict[str, Any] = {"properties": [("long", "x" * 32_200)]}
    (row,) = outcomes([message(0, {"dead": "bad"}, **full)])
    assert (row["verdict"], row["reason"]) == ("DEAD", "bad")


def test_a_message_that_cannot_come_back_keeps_its_handlers_reason_too() -> None:
    full: dict[str, Any] = {"properties": [("long", "x" * 32_200)]}
    (row,) = decided(lambda batch: [Verdict.retry(reason="closed")], [message(0, **full)])
    assert row["verdict"] == "DEAD"
    assert row["reason"].startswith("its properties leave no space")
    assert row["reason"].endswith("; closed")


def test_the_level_a_verdict_names_goes_before_the_groups_own() -> None:
    answers = [Verdict.retry(4), Verdict.retry(), Verdict.dead("no"), None]
    rows = decided(lambda batch: answers, [message(at) for at in range(4)])
    assert [row["delay_level"] for row in rows] == [4, 2, None, None]
    waits = [row["next_attempt_at"] and row["next_attempt_at"] - row["finished_at"] for row in rows]
    assert waits == [timedelta(seconds=60), timedelta(seconds=10), None, None]


def test_a_first_delivery_and_its_retry_are_two_attempts() -> None:
    # Another attempt of the same message, and the first delivery before it, are no repeats.
    other = [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-b/1/4")]
    rows = outcomes([message(4), retried(1, 4, 1), message(4), retried(2, 4, 2)], [retried(3, 4, 1)])
    assert [(row["source_topic"], row["attempt"]) for row in rows] == [
        ("orders", 1),
        ("%RETRY%g", 2),
        ("orders", 1),
        ("%RETRY%g", 3),
    ]
    brokers = outcomes([retried(1, 4, 1), retried(2, 4, 1, properties=other)])
    assert [row["broker_name"] for row in brokers] == ["broker-a", "broker-b"]


def test_a_message_read_at_its_place_is_no_repeat_of_one_on_the_retry_topic() -> None:
    at_its_place = message(4, reconsume_times=1)
    assert len(outcomes([at_its_place, retried(1, 4, 1)])) == 2


def test_the_handler_is_not_called_for_no_messages() -> None:
    calls: list[int] = []

    def handle(batch: pa.RecordBatch) -> None:
        calls.append(batch.num_rows)

    assert decided(handle, []) == []
    assert len(decided(handle, [retried(1, 4, 1), retried(2, 4, 1)])) == 1
    assert calls == [1]


def test_what_failed_only_in_company_comes_again_with_that_attempt_left_out() -> None:
    def handle(batch: pa.RecordBatch) -> None:
        raise ConnectionError

    rows = decided(handle, [message(at) for at in range(2_000)])
    together = [row for row in rows if row["reason"] is not None]
    assert len(together) > 1_000
    assert {row["reason"] for row in together} == {IN_COMPANY}
    assert {dict(row["properties"]).get("LMQ_UNCOUNTED") for row in together} == {"1"}
    alone = [row for row in rows if row["reason"] is None]
    assert alone
    assert {dict(row["properties"]).get("LMQ_ALONE") for row in alone} == {"1"}


def test_an_attempt_in_company_is_not_the_last_one_and_a_last_one_is_made_alone() -> None:
    sizes: list[int] = []

    def handle(batch: pa.RecordBatch) -> Any:
        sizes.append(batch.num_rows)
        return [Verdict.RETRY] * batch.num_rows

    rows = decided(handle, [retried(40, 3, 2), retried(41, 4, 1), message(9)])
    assert [row["verdict"] for row in rows] == ["DEAD", "RETRY", "RETRY"]
    assert sorted(sizes) == [1, 1, 2]
    sizes.clear()
    assert {row["verdict"] for row in decided(handle, [message(0), message(1)], mode="broadcast")} == {
        "DROPPED"
    }
    assert sizes == [2, 1, 1]


def test_a_dead_message_carries_no_marks_of_its_attempts() -> None:
    said = [
        ("RETRY_TOPIC", "orders"),
        ("LMQ_ORIGIN", "broker-a/1/3"),
        ("LMQ_UNCOUNTED", "1"),
        ("LMQ_ALONE", "1"),
    ]

    def handle(batch: pa.RecordBatch) -> None:
        raise ValueError

    dead, again = decided(
        handle, [retried(40, 3, 3) | {"properties": said}, retried(41, 3, 1) | {"properties": said}]
    )
    assert (dead["verdict"], again["verdict"]) == ("DEAD", "RETRY")
    assert {"LMQ_UNCOUNTED", "LMQ_ALONE"}.isdisjoint(dict(dead["properties"]))
    assert dict(again["properties"])["LMQ_ALONE"] == "1"


def test_a_batch_with_nothing_to_handle_does_not_end_the_task() -> None:
    rows = outcomes([], [retried(1, 4, 1)], [retried(2, 4, 1)], [message(9)])
    assert [row["queue_offset"] for row in rows] == [4, 9]


def test_each_row_says_who_handled_it_and_when() -> None:
    for row in outcomes([message(0), message(1, {"raise": "x"})]):
        assert row["worker"] == f"{socket.gethostname()}:{os.getpid()}"
        assert NOW < row["started_at"] <= row["finished_at"]


def test_a_handler_sees_the_position_a_message_had_at_first() -> None:
    seen: list[dict[str, Any]] = []
    decided(lambda batch: seen.extend(batch.to_pylist()), [forged(40, "broker-b/2/3"), message(9)])
    names = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")
    assert [tuple(row[name] for name in names) for row in seen] == [
        ("orders", "broker-b", 2, 3, 2),
        ("orders", "broker-a", 1, 9, 1),
    ]


def half() -> float:
    """Stands for a generator."""
    return 0.5


def test_a_backoff_draws_for_what_comes_again_and_a_verdicts_own_delay_wins() -> None:
    policy = RetryPolicy.of(None, [1_000, 10_000, 30_000, 60_000], 5, "20s..1m", half)

    def handler(batch: pa.RecordBatch) -> list[Verdict]:
        said = {1: Verdict.ACK, 3: Verdict.retry("1m"), 5: Verdict.dead("no")}
        return [said.get(offset, Verdict.RETRY) for offset in batch.column("queue_offset").to_pylist()]

    messages = [message(1), message(2), message(3), retried(40, 4, 2), message(5)]
    rows = decided(handler, messages, policy=policy)
    assert [row["delay_level"] for row in rows] == [None, 2, 4, 3, None]


def sending(*messages: dict[str, Any], mode: Mode = "concurrent") -> list[dict[str, Any]]:
    """Rows of a group that may send to `invoices`."""
    task = OutcomeTask(
        *("g", HandlerTarget(f"{__name__}:send"), POLICY, mode, "query-1", 5), send_to=frozenset(["invoices"])
    )
    batch = pa.RecordBatch.from_pylist(list(messages), SCHEMA)
    made = list(task(iter([batch])))
    assert all(rows.schema.equals(DELIVERIES.arrow_schema) for rows in made)
    return [row for rows in made for row in rows.to_pylist()]


def test_what_a_verdict_sends_is_in_the_row_of_its_outcome() -> None:
    rows = sending(message(3, {"send": ["invoices", "invoices"]}), message(4, {"send": []}))
    assert [(row["verdict"], row["sends"]) for row in rows] == [("ACK", 2), ("ACK", None)]
    assert [sent["topic"] for sent in rows[0]["outbox"]] == ["invoices", "invoices"]
    assert rows[0]["outbox"][0]["properties"] == [("LMQ_CAUSE", "ID3"), ("LMQ_CAUSE_GROUP", "g")]
    assert len({sent["message_id"] for sent in rows[0]["outbox"]}) == 2
    assert rows[0]["body"] is rows[1]["outbox"] is None


def test_a_verdict_that_sends_where_the_group_does_not_comes_again_and_sends_nothing() -> None:
    (row,) = sending(message(3, {"send": ["invoices", "elsewhere"]}))
    assert (row["verdict"], row["sends"], row["outbox"]) == ("RETRY", None, None)
    assert row["reason"] == "the group sends to invoices, not to 'elsewhere': name it with --send-to"
    assert row["next_attempt_at"] is not None
    assert row["body"] is not None
    (last,) = sending(retried(40, 3, 2, {"send": ["elsewhere"]}))
    assert (last["verdict"], last["sends"]) == ("DEAD", None)


def test_a_group_that_sends_handles_small_pieces_and_leaves_nothing_out() -> None:
    messages = [message(offset, {"send": ["invoices"]}) for offset in range(600)]
    rows = sending(*messages)
    assert [row["queue_offset"] for row in rows] == list(range(600))
    assert {row["sends"] for row in rows} == {1}


def in_lanes(
    *batches: list[dict[str, Any]], rules: LaneRules | None = None, policy: RetryPolicy = POLICY
) -> list[dict[str, Any]]:
    handler = HandlerTarget(f"{__name__}:obey")
    task = OutcomeTask("g", handler, policy, "orderly", "query-1", 5, lanes=rules or LaneRules())
    made = list(task(pa.RecordBatch.from_pylist(b, SCHEMA) for b in batches))
    return [row for batch in made for row in batch.to_pylist()]


def keyed(row: dict[str, Any], key: str) -> dict[str, Any]:
    return row | {"properties": [*row["properties"], ("LMQ_SHARDING_KEY", key)]}


def test_what_follows_a_failure_on_its_lane_is_parked_with_its_body() -> None:
    rows = in_lanes(
        [
            keyed(message(0, {"raise": "x"}), "a"),
            keyed(message(1), "b"),
            keyed(message(2), "a"),
            message(3),
        ]
    )
    assert [row["verdict"] for row in rows] == ["RETRY", "ACK", "PARKED", "ACK"]
    assert ("LMQ_ORDERLY", "1") in rows[0]["properties"], "retention keeps what suspends a lane"
    parked = rows[2]
    assert (parked["attempt"], parked["body"], parked["flag"]) == (1, b"{}", 7)
    assert parked["properties"] == [("colour", "red"), ("LMQ_SHARDING_KEY", "a")]
    assert (
        parked["started_at"] is parked["next_attempt_at"] is parked["error_text"] is parked["reason"] is None
    )
    assert parked["finished_at"] >= rows[0]["finished_at"]


def test_a_retry_that_is_parked_keeps_what_is_known_of_its_attempts() -> None:
    lane = Lane("orders", "broker-a", 1, None)
    marks = [*retried(1, 4, 1)["properties"], ("LMQ_UNCOUNTED", "1"), ("LMQ_ALONE", "1")]
    rules = LaneRules({lane: (Attempt(2, 2),)})
    (row,) = in_lanes([retried(1, 4, 1, properties=marks)], rules=rules)
    assert (row["verdict"], row["attempt"], row["source_topic"]) == ("PARKED", 2, "%RETRY%g")
    assert {name: value for name, value in row["properties"] if name.startswith("LMQ_")} == {
        "LMQ_ORIGIN": "broker-a/1/4",
        "LMQ_UNCOUNTED": "1",
        "LMQ_ALONE": "1",
    }


def test_what_is_parked_already_and_goes_on_waiting_has_no_second_row() -> None:
    lane = Lane("orders", "broker-a", 1, None)
    rules = LaneRules(parked=frozenset((lane, Attempt(offset, 1)) for offset in (0, 1)))
    rows = in_lanes([message(0, {"raise": "x"}), message(1)], [message(2)], rules=rules)
    assert [(row["queue_offset"], row["verdict"]) for row in rows] == [(0, "RETRY"), (2, "PARKED")]


def test_a_lane_goes_on_behind_a_message_that_is_given_up() -> None:
    policy = RetryPolicy.of("10s", [1_000, 10_000], 0)
    rows = in_lanes([message(0, {"raise": "x"}), message(1, {"dead": "y"}), message(2)], policy=policy)
    assert [row["verdict"] for row in rows] == ["DEAD", "DEAD", "ACK"]


@pytest.mark.parametrize(
    ("attempt", "isolation", "apart"), [(0, "thread", False), (1, "thread", True), (3, "process", True)]
)
def test_a_task_that_is_started_again_has_the_handler_in_a_process_of_its_own(
    attempt: int, isolation: Isolation, apart: bool
) -> None:
    target = HandlerTarget("tests.unit.jobs.handler.handlers_that_end:says_where")
    handled: list[Handled] = []
    task = OutcomeTask(
        *("g", target, POLICY, "concurrent", "query-1", 5),
        host=HandlerHost(isolation=isolation),
        handled=handled.append,
        attempt_number=lambda: attempt,
    )
    (rows,) = task(iter([pa.RecordBatch.from_pylist([message(0)], SCHEMA)]))
    assert (rows.column("reason")[0].as_py() != str(os.getpid())) == apart
    assert [piece.ended for piece in handled] == [0]


def test_calls_that_end_their_process_are_counted() -> None:
    target = HandlerTarget("tests.unit.jobs.handler.handlers_that_end:dies")
    handled: list[Handled] = []
    task = OutcomeTask(
        *("g", target, POLICY, "concurrent", "query-1", 5),
        host=HandlerHost(isolation="process", timeout_s=2.0),
        handled=handled.append,
    )
    bodies = [b"exit", b"a", b"hang", b"raise", b"signal"]
    messages = [message(offset, body=body) for offset, body in enumerate(bodies)]
    list(task(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)])))
    assert [(piece.rows, piece.ended) for piece in handled] == [(5, 3)]


def part_outcomes(part: TaskPart, messages: list[dict[str, Any]], mode: Mode = "concurrent") -> list[Any]:
    task = OutcomeTask(
        *("g", HandlerTarget(f"{__name__}:obey"), POLICY, mode, "query-1", 5),
        lanes=LaneRules() if mode == "orderly" else None,
        part=part,
    )
    made = task(iter([pa.RecordBatch.from_pylist(messages, SCHEMA)]))
    rows = [row for batch in made for row in batch.to_pylist()]
    return [(row["queue_offset"], row["attempt"], row["verdict"], row["reason"]) for row in rows]


def attempt_at(offset: int, attempt: int = 1) -> tuple[str, str, int, int, int]:
    return "orders", "broker-a", 1, offset, attempt


def test_only_the_messages_of_a_part_are_handled() -> None:
    messages = [message(0), message(1, {"dead": "bad"}), retried(5, 0, 1), message(2, {"dead": "bad"})]
    part = TaskPart(frozenset({attempt_at(0, 2), attempt_at(1)}))
    assert part_outcomes(part, messages) == [(1, 1, "DEAD", "bad"), (0, 2, "ACK", None)]


def test_a_message_whose_worker_died_before_is_not_called() -> None:
    part = TaskPart(frozenset({attempt_at(1)}), died=True)
    assert part_outcomes(part, [message(0), message(1, {"dead": "bad"})]) == [(1, 1, "RETRY", "worker died")]
    used_up = TaskPart(frozenset({attempt_at(1, 3)}), died=True)
    assert part_outcomes(used_up, [retried(0, 1, 2)]) == [(1, 3, "DEAD", "worker died")]


@pytest.mark.parametrize(
    ("coming_again", "died", "verdict"),
    [
        ((), False, "ACK"),
        ((1,), False, "ACK"),
        ((0,), False, "PARKED"),
        ((0,), True, "PARKED"),
        ((), True, "RETRY"),
    ],
)
def test_a_part_of_an_orderly_group_finds_its_lanes_as_the_messages_before_it_left_them(
    coming_again: tuple[int, ...], died: bool, verdict: str
) -> None:
    messages = [keyed(message(offset), key) for offset, key in enumerate("abab")]
    before = frozenset({attempt_at(0), attempt_at(1)})
    again = frozenset(attempt_at(offset) for offset in coming_again)
    part = TaskPart(frozenset({attempt_at(2)}), before, again, died)
    (row,) = part_outcomes(part, messages, "orderly")
    assert (row[0], row[2]) == (2, verdict)
