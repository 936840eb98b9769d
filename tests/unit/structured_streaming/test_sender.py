"""The sink's patience: what may pass is tried again until the time is over, the rest fails at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemq.client import BatchResult, OutcomeUnknown
from store_native.errors import Closed, InvalidRequest, LakeMQError, Unavailable
from structured_streaming.chunks import RowChunk
from structured_streaming.sender import LONGEST_PAUSE_S, key_of, patiently

STORED = BatchResult("SEND_OK", 1, ())


class Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def after(*errors: LakeMQError) -> tuple[Clock, BatchResult]:
    clock, left = Clock(), list(errors)

    def call() -> BatchResult:
        if left:
            raise left.pop(0)
        return STORED

    return clock, patiently(call, 60.0, clock=clock, pause=clock.pause)


def test_a_broker_that_comes_back_gets_the_request_again() -> None:
    away = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
    lost = OutcomeUnknown.of("the answer got lost", "k")
    clock, result = after(
        away, lost, Closed("STORE_CLOSED", "restarting"), InvalidRequest("REQUEST_TIMEOUT", "")
    )
    assert result is STORED
    assert len(clock.pauses) == 4
    assert clock.pauses[0] < clock.pauses[3]


def test_a_pause_is_as_long_as_the_broker_asks_within_bounds() -> None:
    clock, _ = after(Unavailable("TOO_MANY_REQUESTS", "", retry_after_ms=2_000))
    assert clock.pauses == [2.0]
    clock, _ = after(Unavailable("TOO_MANY_REQUESTS", "", retry_after_ms=3_600_000))
    assert clock.pauses == [LONGEST_PAUSE_S]


def test_a_refusal_that_stays_fails_at_once() -> None:
    with pytest.raises(InvalidRequest, match="MESSAGE_ILLEGAL"):
        after(InvalidRequest("MESSAGE_ILLEGAL", "row 3: empty body"))


def test_the_last_refusal_is_raised_when_the_time_is_over() -> None:
    clock = Clock()

    def away() -> BatchResult:
        raise Unavailable("SERVICE_NOT_AVAILABLE", f"no connection at {clock.now:.0f}")

    with pytest.raises(Unavailable, match="no connection at 60"):
        patiently(away, 60.0, clock=clock, pause=clock.pause)
    assert max(clock.pauses) <= LONGEST_PAUSE_S


def test_keys_stay_within_the_brokers_limit() -> None:
    rows = pa.table({"body": [b"x"]})
    longest = RowChunk("%RETRY%" + "g" * 120, 10**9, rows, "0123456789abcdef")
    key = key_of(f"spark/{'n' * 64}/{2**63}/{2**31}", longest)
    assert len(key) <= 255
    assert key.isascii()
    assert key_of("spark/q/7/0", RowChunk("orders", 3, rows, "ab")) == "spark/q/7/0/orders/3/ab"
