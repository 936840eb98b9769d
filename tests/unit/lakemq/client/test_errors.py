"""A refusal over HTTP becomes the class the store raised."""

from __future__ import annotations

import gc
import json
import pickle

import pytest

from lakemq.client import InternalError, InvalidRequest, OutcomeUnknown, Unavailable
from lakemq.client.errors import from_problem


def problem(**fields: object) -> bytes:
    return json.dumps({"type": "about:blank", "title": "refused", **fields}).encode()


def test_code_and_detail_of_the_problem_become_the_error() -> None:
    body = problem(code="TOPIC_NOT_EXIST", detail="topic[x] not exist", topic="x", retryable=False)
    error = from_problem(404, {}, body)
    assert type(error) is InvalidRequest
    assert str(error) == "TOPIC_NOT_EXIST: topic[x] not exist"
    assert error.context == {"topic": "x", "http_status": 404}


def test_pointer_of_the_first_error_is_where_the_store_has_it() -> None:
    body = problem(code="MESSAGE_ILLEGAL", detail="bad", errors=[{"pointer": "/messages/3/tags"}], index=3)
    context = from_problem(422, {}, body).context
    assert (context["pointer"], context["index"]) == ("/messages/3/tags", 3)


def test_retry_after_in_seconds_is_read_from_the_header_when_the_problem_lacks_it() -> None:
    error = from_problem(503, {"Retry-After": "2"}, problem(code="SYSTEM_BUSY", detail="busy"))
    assert type(error) is Unavailable
    assert error.context["retry_after_ms"] == 2000


@pytest.mark.parametrize(
    ("status", "kind"), [(502, Unavailable), (503, Unavailable), (429, Unavailable), (500, InternalError)]
)
def test_page_of_a_proxy_is_sorted_by_its_status(status: int, kind: type[Exception]) -> None:
    error = from_problem(status, {}, b"<html>\n Bad  gateway</html>")
    assert type(error) is kind
    assert "Bad gateway" in str(error)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Retry-After": "9" * 5_000}, problem(code="SYSTEM_BUSY", detail="busy")),
        ({"Retry-After": "Fri, 31 Dec 99999999 23:59:59 GMT"}, problem(code="SYSTEM_BUSY", detail="busy")),
        ({"Retry-After": "-"}, problem(code="SYSTEM_BUSY", retry_after_ms="soon")),
        ({}, problem(code="SYSTEM_BUSY", retry_after_ms=[1])),
        ({}, b'{"code":"SYSTEM_BUSY","retry_after_ms":NaN}'),
        ({}, b'{"code":"SYSTEM_BUSY","retry_after_ms":1e999}'),
        ({}, b'{"code":"SYSTEM_BUSY","retry_after_ms":-5}'),
        ({}, b'{"code":"SYSTEM_BUSY","status":' + b"9" * 5_000 + b"}"),
        ({}, b'{"self":1,"cls":2,"code":"SYSTEM_BUSY","errors":[1]}'),
        ({}, b"[" * 200_000),
        ({}, b'{"code":' * 50_000),
    ],
)
def test_whatever_a_peer_says_is_an_error_of_ours(headers: dict[str, str], body: bytes) -> None:
    gc.collect()  # no finalizer of an earlier test's garbage is to run where the stack ends
    error = from_problem(503, headers, body)
    assert isinstance(error, Unavailable)
    assert 0 <= error.context.get("retry_after_ms", 0) <= 86_400_000
    assert type(pickle.loads(pickle.dumps(error))) is Unavailable


def test_empty_refusal_names_its_status() -> None:
    assert "HTTP status 418" in str(from_problem(418, {}, b""))


def test_unknown_outcome_pickles_with_its_context() -> None:
    error = pickle.loads(pickle.dumps(OutcomeUnknown(detail="no answer", endpoint="http://x")))
    assert type(error) is OutcomeUnknown
    assert (str(error), error.context) == ("OUTCOME_UNKNOWN: no answer", {"endpoint": "http://x"})
    assert not error.retryable
