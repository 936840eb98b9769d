"""Which request is repeated, how, and what a caller is told: one attempt's fate after another.

Contract: what could store a message twice is repeated only when nothing of it left, the broker said that it
stored nothing, or it has a key; a repeat is the same request; "nothing was stored" is said only when that is
known; no attempt, and no pause, goes beyond the time of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import urllib3
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    EmptyPoolError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)

from lakemq.client import Closed, InvalidRequest, OutcomeUnknown, Unavailable
from lakemq.client.transport import Answer, Transport
from tests.support.scripted_network import Answered

ENDPOINT = "http://127.0.0.1:1"
OK = Answered(200, b'{"queue_offset": 7}')
CUT = Answered(200, b'{"queue_off')
BUSY = Answered(503, b'{"code": "SYSTEM_BUSY", "detail": "busy"}')
BROKEN = Answered(500, b'{"code": "SYSTEM_ERROR", "detail": "a defect"}')
WRONG = Answered(400, b'{"code": "ARGUMENT_ILLEGAL", "detail": "wrong"}')
PROXY = Answered(502, b"<html>Bad gateway</html>")
NOBODY = NewConnectionError(cast(Any, None), "refused")
SILENT = ConnectTimeoutError(cast(Any, None), "timed out")
BUSY_POOL = EmptyPoolError(cast(Any, None), "full")
RESET = ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))
LATE = ReadTimeoutError(cast(Any, None), "/", "late")
Fate = Answered | Exception


@dataclass
class Scripted:
    """The connections of a transport: an attempt after the other meets its fate."""

    fates: list[Fate]
    asked: list[dict[str, Any]] = field(default_factory=list)
    closed: int = 0

    def urlopen(self, method: str, url: str, **named: Any) -> Answered:
        self.asked.append({"method": method, "url": url, **named})
        fate = self.fates.pop(0)
        if isinstance(fate, Exception):
            raise fate
        return fate

    def close(self) -> None:
        self.closed += 1


def over(*fates: Fate, pauses: list[float] | None = None, **options: Any) -> tuple[Transport, Scripted]:
    pool = Scripted(list(fates))
    given: dict[str, Any] = {"timeout_s": 30.0, "retries": 2, "pool_size": 4} | options
    noted: list[float] = [] if pauses is None else pauses
    pooled = cast(urllib3.HTTPConnectionPool, pool)
    return Transport(ENDPOINT, **given, pause=noted.append, pool=pooled), pool


def offset(answer: Any) -> int:
    return int(answer["queue_offset"])


def read(transport: Transport, **named: Any) -> Answer:
    return transport.call("GET", "/api/v1/x", **named)


def send(transport: Transport, **named: Any) -> Answer:
    return transport.call("POST", "/api/v1/x", body=b"m", stores=offset, **named)


def keyed(transport: Transport, **named: Any) -> Answer:
    return send(transport, idempotency_key="k", **named)


@pytest.mark.parametrize(
    ("call", "fates"),
    [
        (read, [OK]),
        (read, [RESET, OK]),
        (read, [LATE, RESET, OK]),
        (read, [PROXY, BUSY, OK]),
        (send, [OK]),
        (send, [NOBODY, SILENT, OK]),
        (send, [BUSY_POOL, BUSY, OK]),
        (keyed, [RESET, PROXY, OK]),
        (keyed, [CUT, LATE, OK]),
        (keyed, [NOBODY, BUSY, OK]),
    ],
)
def test_what_may_be_repeated_is_as_often_as_it_is_allowed(
    call: Callable[..., Answer], fates: list[Fate]
) -> None:
    transport, pool = over(*fates)
    answer = call(transport)
    assert (answer.status, answer.body, answer.endpoint) == (200, OK.data, ENDPOINT)
    assert answer.result == (None if call is read else 7)
    assert not pool.fates
    first = {key: pool.asked[0][key] for key in ("method", "url", "body", "headers", "redirect")}
    for attempt in pool.asked:
        assert {key: attempt[key] for key in first} == first
    assert first["headers"].get("Idempotency-Key") == ("k" if call is keyed else None)


@pytest.mark.parametrize(
    ("call", "fates", "error", "sent"),
    [
        (read, [RESET] * 3, Unavailable, True),
        (read, [LATE] * 3, Unavailable, True),
        (read, [NOBODY] * 3, Unavailable, False),
        (read, [SILENT] * 3, Unavailable, False),
        (read, [BUSY_POOL] * 3, Unavailable, False),
        (read, [BUSY] * 3, Unavailable, None),
        (read, [WRONG], InvalidRequest, None),
        (read, [ClosedPoolError(cast(Any, None), "closed")], Closed, None),
        (send, [NOBODY] * 3, Unavailable, False),
        (send, [BUSY] * 3, Unavailable, None),
        (send, [WRONG], InvalidRequest, None),
        (send, [RESET], OutcomeUnknown, True),
        (send, [LATE], OutcomeUnknown, True),
        (send, [CUT], OutcomeUnknown, True),
        (send, [PROXY], OutcomeUnknown, True),
        (send, [NOBODY, RESET], OutcomeUnknown, True),
        (keyed, [RESET] * 3, OutcomeUnknown, True),
        (keyed, [RESET, NOBODY, NOBODY], OutcomeUnknown, None),
        (keyed, [RESET, BUSY, BUSY], OutcomeUnknown, None),
        (keyed, [PROXY, WRONG], OutcomeUnknown, None),
        (keyed, [NOBODY, WRONG], InvalidRequest, None),
        (keyed, [WRONG], InvalidRequest, None),
    ],
)
def test_the_error_at_the_end_is_true_of_all_attempts(
    call: Callable[..., Answer], fates: list[Fate], error: type[Exception], sent: bool | None
) -> None:
    transport, pool = over(*fates, OK)
    with pytest.raises(error) as ended:
        call(transport)
    assert type(ended.value) is error
    assert pool.fates == [OK], "tried once more, or once less, than it may be"
    context = cast(Any, ended.value).context
    assert context.get("sent") is sent
    if error is OutcomeUnknown:
        assert context["idempotency_key"] == ("k" if call is keyed else None)
        assert context["endpoint"] == ENDPOINT
    elif sent is not None:
        assert context["endpoint"] == ENDPOINT


def test_a_defect_the_broker_reports_is_its_own_answer() -> None:
    transport, pool = over(BROKEN)
    with pytest.raises(Exception, match="SYSTEM_ERROR") as raised:
        send(transport)
    assert not isinstance(raised.value, OutcomeUnknown)
    assert len(pool.asked) == 1


def test_an_answer_that_is_no_success_is_a_refusal() -> None:
    for status in (199, 300, 301):
        transport, _ = over(Answered(status, b"{}"), retries=0)
        with pytest.raises(InvalidRequest):
            send(transport)
    for status in (200, 299):
        assert send(over(Answered(status, OK.data))[0]).status == status


def test_a_call_may_be_repeated_as_often_as_it_says_itself() -> None:
    transport, pool = over(*[NOBODY] * 9)
    for retries, attempts in ((0, 1), (4, 5)):
        before = len(pool.asked)
        with pytest.raises(Unavailable):
            read(transport, retries=retries)
        assert len(pool.asked) - before == attempts


@pytest.mark.parametrize("of_call", [False, True])
def test_until_its_time_is_over_a_call_is_repeated_whatever_the_number(of_call: bool) -> None:
    until: dict[str, Any] = {"retry_until": 60.0}
    transport, pool = over(*[NOBODY] * 7, OK, **({} if of_call else until))
    assert read(transport, **(until if of_call else {})).status == 200
    assert not pool.fates


def test_pauses_grow_to_two_seconds_half_of_them_by_chance() -> None:
    pauses: list[float] = []
    transport, _ = over(*[NOBODY] * 14, OK, pauses=pauses, retry_until=100.0)
    read(transport)
    most = [0.1, 0.2, 0.4, 0.8, 1.6] + [2.0] * 9
    assert len(pauses) == len(most)
    for pause, bound in zip(pauses, most, strict=True):
        assert bound / 2 <= pause <= bound
    assert len(set(pauses)) > 5


def test_the_pause_a_broker_asks_for_is_kept_where_it_is_longer() -> None:
    pauses: list[float] = []

    def asking(ms: int) -> Answered:
        return Answered(503, b'{"code": "SYSTEM_BUSY", "detail": "busy", "retry_after_ms": %d}' % ms)

    transport, _ = over(asking(7_000), asking(1), OK, pauses=pauses)
    read(transport)
    assert pauses[0] == 7.0
    assert 0.1 <= pauses[1] <= 0.2


def test_no_pause_and_no_attempt_goes_beyond_the_time_of_the_call() -> None:
    long = Answered(503, b'{"code": "SYSTEM_BUSY", "detail": "busy", "retry_after_ms": 40000}')
    pauses: list[float] = []
    transport, pool = over(long, pauses=pauses)
    with pytest.raises(Unavailable):
        read(transport)
    assert (len(pool.asked), pauses) == (1, [])
    transport, pool = over(long, OK, retry_until=50.0, pauses=pauses)
    assert read(transport).status == 200
    assert pauses == [40.0]


@pytest.mark.parametrize(
    ("options", "wait_s", "connect", "most"),
    [
        ({"timeout_s": 30.0}, 0.0, 3.0, 30.0),
        ({"timeout_s": 2.0}, 0.0, 2.0, 2.0),
        ({"timeout_s": 2.0}, 20.0, 3.0, 22.0),
        ({"timeout_s": 30.0, "retry_until": 5.0}, 0.0, 3.0, 5.0),
        ({"timeout_s": 5.0, "retry_until": 50.0}, 0.0, 3.0, 5.0),
        ({"timeout_s": 1e-9}, 0.0, 0.001, 0.001),
    ],
)
def test_an_attempt_has_the_time_of_its_call_and_connecting_no_more_than_its_own(
    options: dict[str, Any], wait_s: float, connect: float, most: float
) -> None:
    transport, pool = over(OK, **options)
    read(transport, wait_s=wait_s)
    (asked,) = pool.asked
    assert asked["timeout"].connect_timeout == pytest.approx(connect, rel=0.5)
    assert asked["timeout"].connect_timeout <= connect
    assert most - 1.5 <= asked["pool_timeout"] <= most


def test_what_is_asked_for_is_sent_and_nothing_else() -> None:
    transport, pool = over(OK, OK)
    given = {"X": "1"}
    transport.call(
        "PUT", "/p", query={"a": 1, "b": None}, body=b"x", headers=given, idempotency_key="~" * 255
    )
    read(transport)
    first, second = pool.asked
    assert (first["method"], first["url"], first["body"]) == ("PUT", "/p?a=1", b"x")
    assert first["headers"] == {"X": "1", "Idempotency-Key": "~" * 255}
    assert given == {"X": "1"}, "the caller's own"
    assert first["redirect"] is False
    assert (second["url"], second["body"], second["headers"]) == ("/api/v1/x", None, {})


def test_a_closed_transport_sends_nothing_and_closes_its_connections() -> None:
    transport, pool = over(OK)
    transport.close()
    assert pool.closed == 1
    with pytest.raises(Closed, match="CLIENT_CLOSED"):
        send(transport)
    assert pool.asked == []


@pytest.mark.parametrize(
    ("fate", "words"),
    [
        (RESET, "Connection reset by peer"),
        (LATE, "timed out"),
        (ProtocolError("broken"), "broken"),
        (ProtocolError("Connection aborted.", ValueError("odd")), "odd"),
    ],
)
def test_the_cause_is_said_in_words(fate: Exception, words: str) -> None:
    transport, _ = over(fate, retries=0)
    with pytest.raises(Unavailable) as raised:
        read(transport)
    assert raised.value.detail.endswith(words)
    assert "object at" not in raised.value.detail
