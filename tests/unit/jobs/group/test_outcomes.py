"""Rows of `deliveries` made from messages: what is kept, what is sent, who handled it."""

from __future__ import annotations

import os
import socket
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.deliveries import DELIVERIES
from jobs.group.addressing import Acceptance
from jobs.group.batch_size import Handled
from jobs.group.carried import Carriers
from jobs.group.outcomes import OutcomeTask
from jobs.handler.invocation import HandlerHost, Isolation
from jobs.handler.loader import HandlerTarget
from jobs.settings import Mode
from tests.support.outcome_rows import NOW, POLICY, SCHEMA, SEND, decided, message, outcomes, retried


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


def test_first_deliveries_and_retries_mix_in_one_batch() -> None:
    rows = outcomes([message(9), retried(1, 4, 1), message(10)])
    assert [(r["topic"], r["queue_offset"], r["attempt"]) for r in rows] == [
        ("orders", 9, 1),
        ("orders", 4, 2),
        ("orders", 10, 1),
    ]


def test_broadcast_mode_drops_what_fails() -> None:
    rows = outcomes([message(0), message(1, {"raise": "x"}), message(2, {"dead": "y"})], mode="broadcast")
    assert [row["verdict"] for row in rows] == ["ACK", "DROPPED", "DROPPED"]
    assert all(row["next_attempt_at"] is None for row in rows)


def test_an_empty_batch_gives_no_rows() -> None:
    assert outcomes([]) == []


def test_what_is_acknowledged_keeps_no_properties_beside_a_marked_failure() -> None:
    marked = [("LMQ_UNCOUNTED", "1"), ("colour", "red")]
    rows = outcomes([message(0, properties=marked), message(1, {"raise": "x"}, properties=marked)])
    assert [row["verdict"] for row in rows] == ["ACK", "RETRY"]
    assert [row["properties"] for row in rows] == [None, [("colour", "red")]]


def test_the_handler_is_not_called_for_no_messages() -> None:
    calls: list[int] = []

    def handle(batch: pa.RecordBatch) -> None:
        calls.append(batch.num_rows)

    assert decided(handle, []) == []
    assert len(decided(handle, [retried(1, 4, 1), retried(2, 4, 1)])) == 1
    assert calls == [1]


def test_a_batch_with_nothing_to_handle_does_not_end_the_task() -> None:
    rows = outcomes([], [retried(1, 4, 1)], [retried(2, 4, 1)], [message(9)])
    assert [row["queue_offset"] for row in rows] == [4, 9]


def test_each_row_says_who_handled_it_and_when() -> None:
    for row in outcomes([message(0), message(1, {"raise": "x"})]):
        assert row["worker"] == f"{socket.gethostname()}:{os.getpid()}"
        assert NOW < row["started_at"] <= row["finished_at"]


def sending(*messages: dict[str, Any], mode: Mode = "concurrent") -> list[dict[str, Any]]:
    """Rows of a group that may send to `invoices`."""
    may = Carriers(Acceptance(frozenset(["invoices"])))
    task = OutcomeTask(*("g", SEND, POLICY, mode, "query-1", 5), may_carry=may)
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
