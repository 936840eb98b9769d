"""What a pull asks for: defaults by format, bounds, and nothing ignored."""

from __future__ import annotations

import pytest

from ingest_api.broker.pull_service import PullRequest
from ingest_api.http.messages.pull_query import ARROW, parse_query, read_pull
from store_native.errors import InvalidRequest


def pull(query: bytes, *, topic: str = "orders", queue: str = "0", arrow: bool = False) -> PullRequest:
    headers = [(b"accept", ARROW)] if arrow else [(b"accept", b"*/*")]
    return read_pull(topic, queue, query, headers, 60_000)


def test_json_and_arrow_have_their_own_defaults() -> None:
    json_pull, arrow_pull = pull(b"offset=5"), pull(b"offset=5", arrow=True)
    assert (json_pull.offset, json_pull.max_messages, json_pull.max_bytes) == (5, 32, 256 << 10)
    assert (arrow_pull.max_messages, arrow_pull.max_bytes) == (10_000, 16 << 20)
    assert json_pull.tags == "*"
    assert not json_pull.arrow


def test_everything_can_be_asked_for() -> None:
    found = pull(
        b"offset=1&end_offset=9&max=2&max_bytes=3&wait_ms=15000&tags=A%20%7C%7C+B&group=g&columns=body,+topic",
        arrow=True,
    )
    assert (found.offset, found.end_offset, found.max_messages, found.max_bytes) == (1, 9, 2, 3)
    assert (found.wait_ms, found.tags, found.group, found.columns) == (
        15_000,
        "A || B",
        "g",
        ["body", "topic"],
    )


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        (b"", "offset"),
        (b"offset=", "offset"),
        (b"offset=-1", "offset"),
        (b"offset=1.5", "offset"),
        (b"offset=9223372036854775808", "offset"),
        (b"offset=%D9%A1", "offset"),
        (b"offset=1&offset=2", "offset"),
        (b"offset=1&max=0", "max"),
        (b"offset=1&max=10001", "max"),
        (b"offset=1&wait_ms=60001", "wait_ms"),
        (b"offset=1&ofset=1", "ofset"),
        (b"offset=1&columns=body", "columns"),
        (b"offset=1&end_offset=3", "end_offset"),
    ],
)
def test_a_wrong_parameter_is_refused_by_its_name(query: bytes, parameter: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        pull(query)
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    assert refused.value.context["parameter"] == parameter


def test_sql_filters_are_not_implemented() -> None:
    with pytest.raises(InvalidRequest) as refused:
        pull(b"offset=0&sql=a%3D1")
    assert refused.value.code == "NOT_IMPLEMENTED"


@pytest.mark.parametrize("topic", ["..", "a/b", "a b", "x" * 300, "ü"])
def test_a_bad_topic_is_refused(topic: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        pull(b"offset=0", topic=topic)
    assert refused.value.code == "TOPIC_ILLEGAL"


@pytest.mark.parametrize("queue", ["-1", "x", "4294967296", ""])
def test_a_bad_queue_is_refused(queue: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        pull(b"offset=0", queue=queue)
    assert refused.value.context["parameter"] == "queue_id"


def test_a_query_string_is_split_and_decoded() -> None:
    assert parse_query(b"a=1&b=x%26y&c=&d&&e=a+b") == {"a": "1", "b": "x&y", "c": "", "d": "", "e": "a b"}


@pytest.mark.parametrize(
    ("accept", "arrow"),
    [
        (b"%b", True),
        (b"%b;q=0.5, */*;q=0.1", True),
        (b"%b;q=0", False),
        (b"%b; Q=0.000, application/json", False),
        (b"%b;q=0.2, application/json;q=0.9", False),
        (b"%b;q=high", False),
        (b"%bs", False),
        (b"*/*", False),
    ],
)
def test_the_weights_of_accept_are_respected(accept: bytes, arrow: bool) -> None:
    value = accept.replace(b"%b", b"application/vnd.apache.arrow.stream")
    assert read_pull("t", "0", b"offset=0", [(b"accept", value)], 1000).arrow is arrow
