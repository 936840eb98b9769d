"""What is said of messages that wait to be sent, how often, and how long the next try is waited for."""

from __future__ import annotations

import pytest

from jobs.runtime.hold_up import LEFT_OUT_S, LONGEST_PAUSE_S, SAID_AGAIN_S, HoldUp
from store_native.errors import InvalidRequest, Unavailable

REFUSED = InvalidRequest("NO_PERMISSION", "topic[b] is not writable")
AWAY = Unavailable("SERVICE_NOT_AVAILABLE", "broker-b does not answer")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_grow_to_a_bound_and_begin_again_after_what_went_on() -> None:
    held = HoldUp("g", clock=Clock())
    pauses = [held.meet(REFUSED) for _ in range(7)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    held.end()
    assert held.meet(AWAY) == 1.0


def test_it_is_said_at_first_when_the_reason_changes_and_again_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    held = HoldUp("g", clock=clock)
    for error in (AWAY, AWAY, REFUSED, REFUSED):
        held.meet(error)
    clock.now = SAID_AGAIN_S
    held.meet(REFUSED)
    held.end()
    held.end()
    waits = "what verdicts of g send waits, the group goes on: "
    refused = f"{waits}NO_PERMISSION: topic[b] is not writable; it is tried again until the broker takes it; "
    refused += "lakemq outbox discard --group g gives it up"
    assert [record.getMessage() for record in caplog.records] == [
        f"{waits}SERVICE_NOT_AVAILABLE: broker-b does not answer",
        refused,
        refused,
        "what verdicts of g send goes on",
    ]


def test_it_is_long_from_a_time_on_and_ends_with_what_went_on() -> None:
    clock = Clock()
    held = HoldUp("g", clock=clock)
    assert (held.seconds, held.is_long) == (0.0, False)
    held.meet(AWAY)
    clock.now = LEFT_OUT_S
    held.meet(AWAY)
    assert (held.seconds, held.is_long) == (LEFT_OUT_S, True)
    held.end()
    assert (held.seconds, held.is_long) == (0.0, False)


def test_what_a_table_holds_up_is_said_in_its_words(caplog: pytest.LogCaptureFixture) -> None:
    held = HoldUp("g", what="what verdicts of g write to t", until="the table takes it", clock=Clock())
    held.meet(REFUSED)
    held.end()
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("what verdicts of g write to t waits, the group goes on: NO_PERMISSION")
    assert "it is tried again until the table takes it; lakemq outbox discard --group g" in said[0]
    assert said[1] == "what verdicts of g write to t goes on"
