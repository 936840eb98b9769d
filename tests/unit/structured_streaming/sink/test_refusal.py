"""Which failures of a task are its result, and what the commit says of them."""

from __future__ import annotations

import pickle

import pytest

from store_native.errors import InternalError, InvalidRequest, LakeMQError, Unavailable
from structured_streaming.sink.refusal import Refused, check_refused, sent_or_refused
from structured_streaming.sink.sender import TaskResult

SENT = TaskResult(3, 0)


def failing(error: LakeMQError) -> TaskResult:
    raise error


def test_a_refusal_is_the_tasks_result_and_reaches_the_driver() -> None:
    refused = sent_or_refused(lambda: failing(InvalidRequest("TOPIC_NOT_EXIST", "no t", topic="t")))
    assert isinstance(refused, Refused)
    with pytest.raises(
        InvalidRequest, match=r"TOPIC_NOT_EXIST: no t \(1 of 3 tasks were refused\)"
    ) as raised:
        check_refused([SENT, pickle.loads(pickle.dumps(refused)), None])
    assert raised.value.context["topic"] == "t"
    with pytest.raises(InvalidRequest, match=r"^TOPIC_NOT_EXIST: no t$"):
        check_refused([refused])


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("SERVICE_NOT_AVAILABLE", "away"),
        InternalError("SYSTEM_ERROR", "a defect"),
        InvalidRequest("REQUEST_TIMEOUT", "too slow"),
    ],
    ids=lambda error: error.code,
)
def test_what_may_pass_stays_a_failure_of_the_task(error: LakeMQError) -> None:
    with pytest.raises(type(error)):
        sent_or_refused(lambda: failing(error))


def test_what_was_sent_is_committed() -> None:
    assert sent_or_refused(lambda: SENT) is SENT
    check_refused([SENT, None])
    check_refused([])
