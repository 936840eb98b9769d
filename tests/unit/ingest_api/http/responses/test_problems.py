"""Errors as problems: one form, whatever raised them."""

from __future__ import annotations

import json

import pytest

from ingest_api.http.responses.problems import STATUS, problem_of
from store_native import errors


def test_a_problem_carries_what_a_caller_needs() -> None:
    error = errors.from_code(
        "MESSAGE_ILLEGAL", "control characters", index=3, pointer="/messages/3/tags", limit=5
    )
    problem = problem_of(error, "/api/v1/topics/t/messages", "id1")
    document = json.loads(problem.body)
    assert problem.status == document["status"] == 422
    assert document["code"] == "MESSAGE_ILLEGAL"
    assert document["detail"] == "control characters"
    assert document["instance"] == "/api/v1/topics/t/messages"
    assert document["request_id"] == "id1"
    assert document["retryable"] is False
    assert document["errors"] == [{"detail": "control characters", "pointer": "/messages/3/tags", "index": 3}]
    assert document["limit"] == 5
    headers = dict(problem.headers)
    assert headers[b"content-type"] == b"application/problem+json"
    assert int(headers[b"content-length"]) == len(problem.body)
    assert b"retry-after" not in headers


@pytest.mark.parametrize("code", ["SYSTEM_BUSY", "TOO_MANY_REQUESTS", "DISK_FULL", "NOT_MASTER"])
def test_what_may_be_tried_again_says_when(code: str) -> None:
    problem = problem_of(errors.from_code(code, "busy"), "/", "id")
    document = json.loads(problem.body)
    assert document["retryable"] is True
    assert document["retry_after_ms"] > 0
    assert int(dict(problem.headers)[b"retry-after"]) >= 1


def test_retry_after_is_rounded_up_to_whole_seconds() -> None:
    problem = problem_of(errors.from_code("SYSTEM_BUSY", "busy", retry_after_ms=1_001), "/", "id")
    assert dict(problem.headers)[b"retry-after"] == b"2"


def test_a_code_nobody_listed_is_a_defect() -> None:
    assert problem_of(errors.LakeMQError("NEW_CODE", "?"), "/", "id").status == 500


def test_context_cannot_overwrite_what_the_form_names() -> None:
    shown = json.loads(
        problem_of(errors.from_code("SYSTEM_ERROR", "x", status=200, title="fine"), "/", "i").body
    )
    assert (shown["status"], shown["title"]) == (500, "System error")


def test_every_code_has_a_status_of_its_kind() -> None:
    for code, status in STATUS.items():
        assert status >= 500 or not errors.from_code(code, "").retryable or status == 429


def test_text_that_is_no_utf8_does_not_break_the_answer() -> None:
    json.loads(problem_of(errors.from_code("TOPIC_ILLEGAL", "\udcff"), "/\udcff", "id").body)
