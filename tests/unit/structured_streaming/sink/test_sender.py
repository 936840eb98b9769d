"""The retries of the sink: what may pass is tried again until the time is over, the rest fails at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakemq.client import BatchResult, OutcomeUnknown
from store_native.errors import Closed, InternalError, InvalidRequest, LakeMQError, Unavailable
from structured_streaming.options import WriteOptions
from structured_streaming.retry_timeout import LONGEST_PAUSE_S, retry_until
from structured_streaming.sink.chunks import RowChunk
from structured_streaming.sink.sender import key_of, send_all

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

    return clock, retry_until(call, 60.0, clock=clock, pause=clock.pause)


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
        retry_until(away, 60.0, clock=clock, pause=clock.pause)
    assert max(clock.pauses) <= LONGEST_PAUSE_S


def test_keys_stay_within_the_brokers_limit() -> None:
    rows = pa.table({"body": [b"x"]})
    longest = RowChunk("%RETRY%" + "g" * 120, 10**9, rows, "0123456789abcdef")
    key = key_of(f"spark/{'n' * 64}/{2**63}/{2**31}", longest)
    assert len(key) <= 255
    assert key.isascii()
    assert key_of("spark/q/7/0", RowChunk("orders", 3, rows, "ab")) == "spark/q/7/0/orders/3/ab"


class SmallBroker:
    """Takes requests of so many rows and remembers keys."""

    def __init__(self, most_rows: int) -> None:
        self.most_rows = most_rows
        self.stored: dict[str, list[bytes]] = {}

    def __enter__(self) -> SmallBroker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send_arrow(
        self, topic: str, rows: pa.Table, *, idempotency_key: str, order_version: int | None
    ) -> BatchResult:
        if rows.num_rows > self.most_rows:
            raise InvalidRequest("REQUEST_TOO_LARGE", "a request's body has at most 1 byte")
        duplicate = idempotency_key in self.stored
        self.stored.setdefault(idempotency_key, rows.column("body").to_pylist())
        return BatchResult("SEND_OK", rows.num_rows, (), duplicate=duplicate)


def send_equal_rows(broker: SmallBroker, rows: int) -> int:
    options = WriteOptions("http://nowhere", "orders", None, 10_000, 1_000)
    batch = pa.RecordBatch.from_pydict({"body": [b"same"] * rows})
    result = send_all(options, "spark/q/0/0", iter([batch]), broker)  # type: ignore[arg-type]
    assert result.rows == rows
    return result.duplicate_rows


def test_a_request_the_broker_calls_too_large_goes_in_halves() -> None:
    broker = SmallBroker(most_rows=10)
    assert send_equal_rows(broker, 100) == 0
    assert sum(len(bodies) for bodies in broker.stored.values()) == 100
    assert send_equal_rows(broker, 100) == 100
    assert sum(len(bodies) for bodies in broker.stored.values()) == 100


def test_one_row_that_is_too_large_is_an_error() -> None:
    with pytest.raises(InvalidRequest, match="REQUEST_TOO_LARGE"):
        send_equal_rows(SmallBroker(most_rows=0), 4)


@pytest.mark.parametrize("status", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"])
def test_rows_that_are_stored_less_safely_than_asked_are_sent_again_until_they_are(status: str) -> None:
    class Slow(SmallBroker):
        def __init__(self, most_rows: int) -> None:
            super().__init__(most_rows)
            self.statuses: list[str] = []

        def send_arrow(self, topic: str, rows: pa.Table, **named: Any) -> BatchResult:
            result = super().send_arrow(topic, rows, **named)
            self.statuses.append(status if not self.statuses else result.status)
            return replace(result, status=self.statuses[-1])

    broker = Slow(most_rows=10)
    assert send_equal_rows(broker, 4) == 4
    assert broker.statuses == [status, "SEND_OK"]
    assert len(broker.stored) == 1, "under the same key"


@pytest.mark.parametrize("count", [3, 5])
def test_a_broker_that_has_another_number_of_rows_under_a_key_is_an_error(count: int) -> None:
    class Other(SmallBroker):
        def send_arrow(self, topic: str, rows: pa.Table, **named: Any) -> BatchResult:
            return replace(super().send_arrow(topic, rows, **named), count=count)

    with pytest.raises(InternalError, match=rf"sent 4 rows under the key \S+ the broker has {count}"):
        send_equal_rows(Other(most_rows=10), 4)
