"""Rows of `deliveries` for a call that its batch did not wait for in orderly mode: its lane waits for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.lane_gate import LaneRules
from jobs.handler import usual_time
from jobs.handler.long_call import long_calls_here
from jobs.handler.verdicts import GOES_ON
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import Outgoing, Verdict
from tests.support.long_calls import SlowHandler, again, calling, rows_of, slow
from tests.support.outcome_rows import POLICY, keyed, message

LANE = Lane("orders", "broker-a", 1, "a")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual_time, "SHORTEST_LONG_S", 0.1)


def lanes_of_one(directory: Path, handles: SlowHandler, messages: list[Any], **more: Any) -> list[Any]:
    more.setdefault("lanes", LaneRules())
    return rows_of(directory, handles, messages, mode="orderly", **more)


def waits_for(offset: int, attempt: int) -> LaneRules:
    return LaneRules({LANE: (Attempt(offset, attempt),)})


@pytest.mark.parametrize("is_async", [False, True])
def test_what_follows_it_on_its_lane_is_parked_until_it_has_come_to_something(
    tmp_path: Path, is_async: bool
) -> None:
    with calling(SlowHandler(is_async=is_async)) as handles:
        first = [keyed(slow(0), "a"), keyed(message(1), "b"), keyed(message(2), "a"), keyed(message(3), "b")]
        rows = lanes_of_one(tmp_path, handles, first)
        assert [row["verdict"] for row in rows] == ["RETRY", "ACK", "PARKED", "ACK"]
        assert (rows[0]["reason"], rows[0]["started_at"]) == (GOES_ON.reason, None)
        assert ("LMQ_ORDERLY", "1") in rows[0]["properties"], "retention keeps what suspends a lane"

        second = [again(rows[0]), keyed(message(4), "a"), keyed(message(5), "b")]
        rows = lanes_of_one(tmp_path, handles, second, lanes=waits_for(0, 2))
        assert [row["verdict"] for row in rows] == ["RETRY", "PARKED", "ACK"]
        assert rows[0]["reason"] == GOES_ON.reason

        handles.finish()
        third = [again(rows[0]), keyed(message(2), "a"), keyed(message(4), "a")]
        rows = lanes_of_one(tmp_path, handles, third, lanes=waits_for(0, 3))
        assert [row["verdict"] for row in rows] == ["ACK"] * 3, "and its lane goes on in the same batch"
        assert rows[0]["started_at"] is not None
        assert handles.calls == [0, 1, 3, 5, 2, 4]


def test_one_whose_failure_would_be_its_last_holds_its_lane_all_the_same(tmp_path: Path) -> None:
    """Where it fails the lane goes on, but only then."""
    once = RetryPolicy.of("10s", [1_000, 10_000], 0)
    with calling(SlowHandler(RuntimeError("no"))) as handles:
        both = [keyed(slow(0), "a"), keyed(message(1), "a"), keyed(message(2), "b")]
        rows = lanes_of_one(tmp_path, handles, both, policy=once)
        assert [row["verdict"] for row in rows] == ["RETRY", "PARKED", "ACK"]
        rows = lanes_of_one(
            *(tmp_path, handles, [again(rows[0]), keyed(message(1), "a")]),
            lanes=waits_for(0, 2),
            policy=once,
        )
        assert [row["verdict"] for row in rows] == ["RETRY", "PARKED"]
        handles.finish()
        rows = lanes_of_one(
            *(tmp_path, handles, [again(rows[0]), keyed(message(1), "a")]),
            lanes=waits_for(0, 3),
            policy=once,
        )
        assert [row["verdict"] for row in rows] == ["DEAD", "ACK"]


def test_where_a_batch_is_repeated_its_lane_waits_as_a_whole_while_one_behind_others_is_called(
    tmp_path: Path,
) -> None:
    """What came before it is called once more, but not beside it."""
    batch = [keyed(message(0), "a"), keyed(slow(1), "a"), keyed(message(2), "a"), keyed(message(3), "b")]
    with calling(SlowHandler()) as handles:
        rows = lanes_of_one(tmp_path, handles, batch)
        assert [row["verdict"] for row in rows] == ["ACK", "RETRY", "PARKED", "ACK"]
        rows = lanes_of_one(tmp_path, handles, batch)
        assert [row["verdict"] for row in rows] == ["PARKED", "PARKED", "PARKED", "ACK"]
        assert long_calls_here(tmp_path) == 1
        handles.finish()
        rows = lanes_of_one(tmp_path, handles, batch[:3])
        assert [row["verdict"] for row in rows] == ["ACK", "PARKED", "PARKED"]
        rows = lanes_of_one(tmp_path, handles, batch[1:3])
        assert [row["verdict"] for row in rows] == ["ACK", "ACK"]
        assert handles.calls.count(1) == 1


@pytest.mark.parametrize("rows_of_a_piece", [1, 2])
def test_so_it_waits_where_the_one_that_is_called_comes_in_a_later_piece_or_another_batch(
    tmp_path: Path, rows_of_a_piece: int
) -> None:
    batch = [keyed(message(0), "a"), keyed(message(1), "b"), keyed(slow(2), "a"), keyed(message(3), "b")]
    with calling(SlowHandler()) as handles:
        lanes_of_one(tmp_path, handles, batch)
        rows = lanes_of_one(tmp_path, handles, batch, piece=rows_of_a_piece)
        assert [row["verdict"] for row in rows] == ["PARKED", "ACK", "PARKED", "ACK"]
        (alone,) = lanes_of_one(tmp_path, handles, batch[:1])
        assert alone["verdict"] == "PARKED"
        assert handles.calls.count(0) == 1


def test_a_run_over_what_is_there_waits_for_one_behind_others_before_its_lane_goes_on(tmp_path: Path) -> None:
    batch = [keyed(message(0), "a"), keyed(slow(1), "a")]
    with calling(SlowHandler()) as handles:
        lanes_of_one(tmp_path, handles, batch)
        threading.Timer(0.5, handles.go_on.set).start()
        rows = lanes_of_one(tmp_path, handles, batch, limit_s=None)
        assert [row["verdict"] for row in rows] == ["ACK", "PARKED"]
        assert long_calls_here(tmp_path) == 0


def test_what_it_sends_is_refused_as_in_a_batch(tmp_path: Path) -> None:
    with calling(SlowHandler(Verdict.ack(send=[Outgoing("bills", "one")]))) as handles:
        row, _ = lanes_of_one(tmp_path, handles, [keyed(slow(0), "a"), keyed(message(1), "b")])
        handles.finish()
        (failed,) = lanes_of_one(tmp_path, handles, [again(row)], lanes=waits_for(0, 2))
        assert failed["verdict"] == "RETRY"
        assert failed["error_text"] == "in orderly mode a verdict sends and writes nothing"
        assert failed["delay_level"] == POLICY.delay_levels[0]
