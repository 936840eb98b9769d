"""Rows of `deliveries` for what was put off: no attempt of the message's own, and nothing is lost by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.deliveries import DELIVERIES
from jobs.group.batch_size import Handled
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.outcomes import OutcomeTask
from jobs.group.task_part import TaskPart
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.handler.verdicts import PUT_OFF
from jobs.redelivery.original_position import LAST_ATTEMPT
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from tests.support.outcome_rows import OBEY, POLICY, SCHEMA, attempt_at, message, retried

ONE = HandlerHost(concurrency=1)
NO_TIME_S = 0.0  # up as soon as the first call has begun


def pieces(*batches: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_pylist(batch, SCHEMA) for batch in batches)


def outcomes(
    *batches: list[dict[str, Any]], mode: Mode = "concurrent", limit_s: float | None = NO_TIME_S, **task: Any
) -> list[dict[str, Any]]:
    handle = OutcomeTask(
        *("g", task.pop("handler", OBEY), POLICY, mode, "query-1", 5), host=ONE, limit_s=limit_s, **task
    )
    made = list(handle(pieces(*batches)))
    assert all(rows.schema.equals(DELIVERIES.arrow_schema) for rows in made)
    return [row for rows in made for row in rows.to_pylist()]


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["verdict"] for row in rows]


def test_what_was_put_off_comes_again_after_the_shortest_delay_with_all_that_it_has() -> None:
    done, put_off = outcomes([message(0), message(1, {"dead": "not called"})])
    assert done["verdict"] == "ACK"
    assert (put_off["verdict"], put_off["reason"], put_off["delay_level"]) == ("RETRY", PUT_OFF.reason, 1)
    assert put_off["started_at"] is put_off["error_type"] is None
    assert put_off["next_attempt_at"] - put_off["finished_at"] == timedelta(seconds=1)
    assert json.loads(put_off["body"]) == {"dead": "not called"}
    assert put_off["properties"] == [("colour", "red"), ("LMQ_UNCOUNTED", "1"), ("LMQ_PUT_OFF", "1")]


def test_it_waits_for_the_shortest_of_the_brokers_delays_wherever_that_is_listed() -> None:
    policy = RetryPolicy.of("1m", [60_000, 1_000], 2)
    task = OutcomeTask("g", OBEY, policy, "concurrent", "query-1", 5, host=ONE, limit_s=NO_TIME_S)
    (made,) = task(pieces([message(0), message(1)]))
    _, put_off = made.to_pylist()
    assert put_off["delay_level"] == 2
    assert put_off["next_attempt_at"] - put_off["finished_at"] == timedelta(seconds=1)


def test_the_delay_behind_a_failure_is_that_of_the_attempts_that_were_begun() -> None:
    waiting = message(0)
    for times in range(1, 6):
        _, put_off = outcomes([message(9), waiting])
        assert (put_off["attempt"], put_off["reason"]) == (times, PUT_OFF.reason)
        waiting = retried(0, 0, times, {"raise": "x"}, properties=put_off["properties"])
        waiting["properties"] += [("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", "broker-a/1/0")]
    (failed,) = outcomes([waiting])
    assert (failed["attempt"], failed["delay_level"]) == (6, POLICY.delay_levels[0])


def test_a_message_on_its_last_attempt_keeps_it_and_what_is_known_of_it() -> None:
    last = retried(1, 7, POLICY.max_reconsume_times)
    last["properties"] = [*last["properties"], ("LMQ_ALONE", "1")]
    _, put_off = outcomes([message(0), last])
    assert (put_off["verdict"], put_off["attempt"]) == ("RETRY", 3)
    assert {("LMQ_UNCOUNTED", "1"), ("LMQ_ALONE", "1")} <= set(put_off["properties"])
    again = retried(2, 7, 3, {"raise": "x"}, properties=put_off["properties"])
    assert verdicts(outcomes([again])) == ["DEAD"], "the attempt behind it is the last"


@pytest.mark.parametrize("handler", [OBEY, None])
def test_a_message_that_cannot_come_again_is_called_however_late_it_is(handler: HandlerTarget | None) -> None:
    class Target:
        def load(self) -> LoadedHandler:
            return LoadedHandler(lambda batch: None, True)

    rows = outcomes(
        [message(0)], [message(1)], [retried(2, 7, LAST_ATTEMPT - 1)], handler=handler or Target()
    )
    # Three batches for a handler of batches; one of single messages has them in turn.
    assert verdicts(rows) == ["ACK", "RETRY", "ACK"]
    assert rows[1]["reason"] == PUT_OFF.reason


def test_what_follows_in_a_lane_is_parked_and_other_lanes_too() -> None:
    keyed = [
        row | {"properties": [*row["properties"], ("LMQ_SHARDING_KEY", key)]}
        for row, key in zip(map(message, range(4)), "aabb", strict=True)
    ]
    rows = outcomes(keyed[:3], keyed[3:], mode="orderly", lanes=LaneRules())
    assert verdicts(rows) == ["ACK", "PARKED", "PARKED", "PARKED"]
    assert {row["attempt"] for row in rows} == {1}
    assert rows[3]["properties"] == keyed[3]["properties"]


def test_nothing_is_put_off_where_it_would_not_come_again_or_a_part_is_searched() -> None:
    messages = [message(0), message(1), message(2)]
    assert verdicts(outcomes(messages, mode="broadcast")) == ["ACK"] * 3
    part = TaskPart(frozenset(attempt_at(offset) for offset in range(3)))
    assert verdicts(outcomes(messages, part=part)) == ["ACK"] * 3
    assert verdicts(outcomes(messages, limit_s=None)) == ["ACK"] * 3


def test_what_was_put_off_is_counted_apart() -> None:
    handled: list[Handled] = []
    outcomes([message(0, {"raise": "x"}), message(1), message(2)], handled=handled.append)
    (counted,) = handled
    assert counted == Handled(1, counted.seconds, retried=1, put_off=2)
