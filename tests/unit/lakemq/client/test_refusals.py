"""What a caller is told: the code, the words and the bounds of what the transport refuses or cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from urllib3.exceptions import ClosedPoolError, HTTPError, ProtocolError

from lakemq.client import InvalidRequest, LakeMQError, OutcomeUnknown, Unavailable
from lakemq.client.errors import from_problem
from lakemq.client.transport import (
    LONGEST_RETRY_UNTIL_S,
    LONGEST_TIMEOUT_S,
    MOST_CONNECTIONS,
    Answer,
    normal_endpoint,
    path_of,
)
from tests.support.scripted_network import Answered
from tests.unit.lakemq.client.test_repeats import (
    BUSY_POOL,
    CUT,
    ENDPOINT,
    NOBODY,
    OK,
    RESET,
    WRONG,
    Fate,
    keyed,
    over,
    read,
    send,
)

AWAY = "SERVICE_NOT_AVAILABLE"
CLOSED = ClosedPoolError(cast(Any, None), "closed")


@pytest.mark.parametrize(
    ("call", "fates", "code", "words"),
    [
        (read, [NOBODY], AWAY, f"no connection to {ENDPOINT}: None: refused"),
        (send, [NOBODY], AWAY, f"no connection to {ENDPOINT}: None: refused"),
        (read, [BUSY_POOL], AWAY, f"all 4 connections to {ENDPOINT} were in use for 30.0 s"),
        (read, [RESET], AWAY, f"GET /api/v1/x at {ENDPOINT} got no answer: Connection reset by peer"),
        (read, [CLOSED], "CLIENT_CLOSED", "the client is closed"),
        (send, [RESET], "OUTCOME_UNKNOWN", f"POST /api/v1/x at {ENDPOINT} got no answer: Connection reset"),
        (
            send,
            [CUT],
            "OUTCOME_UNKNOWN",
            f"POST /api/v1/x at {ENDPOINT} got no whole answer: {ENDPOINT} answ",
        ),
        (
            keyed,
            [RESET, WRONG],
            "OUTCOME_UNKNOWN",
            "POST /api/v1/x got no answer, and its repeat was refused",
        ),
    ],
)
def test_what_became_of_a_call_is_said(
    call: Callable[..., Answer], fates: list[Fate], code: str, words: str
) -> None:
    transport, _ = over(*fates, retries=len(fates) - 1)
    with pytest.raises(LakeMQError) as ended:
        call(transport)
    assert ended.value.code == code
    assert ended.value.detail.startswith(words)


def test_a_closed_client_says_so_with_its_code() -> None:
    transport, _ = over(OK)
    transport.close()
    with pytest.raises(LakeMQError) as closed:
        read(transport)
    assert (closed.value.code, closed.value.detail) == ("CLIENT_CLOSED", "the client is closed")


@pytest.mark.parametrize("status", [500, 502, 599])
def test_an_error_of_somebody_between_leaves_open_what_became_of_a_send(status: int) -> None:
    transport, pool = over(Answered(status, b"<html>oops</html>"), OK)
    with pytest.raises(OutcomeUnknown, match="no answer of the broker's"):
        send(transport)
    assert pool.fates == [OK]


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("timeout_s", 1e-9, True),
        ("timeout_s", LONGEST_TIMEOUT_S, True),
        ("timeout_s", LONGEST_TIMEOUT_S + 1, False),
        ("retry_until", 0.5, True),
        ("retry_until", 0, False),
        ("retry_until", LONGEST_RETRY_UNTIL_S, True),
        ("retry_until", LONGEST_RETRY_UNTIL_S + 1, False),
        ("pool_size", 1, True),
        ("pool_size", 0, False),
        ("pool_size", MOST_CONNECTIONS, True),
        ("pool_size", MOST_CONNECTIONS + 1, False),
    ],
)
def test_a_bound_itself_fits(name: str, value: float, fits: bool) -> None:
    options: dict[str, Any] = {name: value}
    if fits:
        over(OK, **options)
        if name == "retry_until":
            assert read(over(OK)[0], retry_until=value).status == 200
        return
    with pytest.raises(InvalidRequest, match=f"^ARGUMENT_ILLEGAL: {name}: is "):
        over(OK, **options)
    if name == "retry_until":
        with pytest.raises(InvalidRequest, match=f"^ARGUMENT_ILLEGAL: {name}: is "):
            read(over(OK)[0], retry_until=value)


def test_a_call_that_is_no_long_poll_has_its_own_time_only() -> None:
    transport, pool = over(OK)
    read(transport)
    assert pool.asked[0]["pool_timeout"] <= 30.0


@pytest.mark.parametrize("key", ["", "a b", "k" * 256])
def test_a_key_that_is_none_has_the_code_of_an_argument(key: str) -> None:
    transport, pool = over(OK)
    with pytest.raises(InvalidRequest, match="1 to 255 visible") as refused:
        send(transport, idempotency_key=key)
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    assert pool.asked == []


@pytest.mark.parametrize(
    "text", ["http://h?a=b", "http://h#f", "http://u:p@h", "http://h/?a=b", "http://u@h#f", "h/api"]
)
def test_what_is_more_than_an_endpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an endpoint") as refused:
        normal_endpoint(text)
    assert refused.value.code == "ARGUMENT_ILLEGAL"


@pytest.mark.parametrize("name", ["", "..", "\ud800"])
def test_what_is_no_name_has_the_code_of_an_argument(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a name") as refused:
        path_of("topics", name)
    assert refused.value.code == "ARGUMENT_ILLEGAL"


def caused(by: Exception) -> Exception:
    error = ProtocolError("Connection aborted.")
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("fate", "words"),
    [
        (caused(TimeoutError("inner")), "inner"),
        (caused(caused(ConnectionResetError(104, "Connection reset by peer"))), "Connection reset by peer"),
        (HTTPError(), "got no answer: "),
        (HTTPError("odd", ValueError("inner")), "('odd', ValueError('inner'))"),
    ],
)
def test_the_innermost_cause_is_said(fate: Exception, words: str) -> None:
    with pytest.raises(Unavailable) as raised:
        read(over(fate, retries=0)[0])
    assert raised.value.detail.endswith(words)


def test_an_answer_of_another_shape_is_shown_by_its_first_eighty_bytes() -> None:
    body = b"\xff" + b"x" * 78 + b"yz"
    refused = Answer(200, {}, body, ENDPOINT).malformed()
    assert (refused.code, refused.context) == ("MALFORMED_BODY", {"endpoint": ENDPOINT})
    assert f"{ENDPOINT} answered what no LakeMQ broker says" in refused.detail
    shown = "�" + "x" * 78 + "y"
    assert refused.detail.endswith(f"(81 bytes): {shown!r}")


def test_an_answers_headers_are_handed_on() -> None:
    answered = Answered(200, OK.data)
    for call in (read, send):
        assert call(over(answered)[0]).headers is answered.headers


def test_an_answer_of_somebody_else_says_so() -> None:
    error = from_problem(404, {}, b"<!DOCTYPE HTML><p>Error code: 404</p>")
    assert error.detail.startswith("this answer (HTTP status 404) is no LakeMQ broker's own: <!DOCTYPE HTML>")
