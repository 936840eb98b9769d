"""Headers of a send: each has one meaning, none is ignored."""

from __future__ import annotations

import pytest

from ingest_api.broker.send_request import PayloadKind
from ingest_api.http.messages.headers import read_headers
from store_native.errors import InvalidRequest


def refused(*headers: tuple[bytes, bytes]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_headers(headers)
    return caught.value


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (b"application/json", PayloadKind.JSON),
        (b"Application/JSON; charset=UTF-8", PayloadKind.JSON),
        (b'application/json;charset="utf-8"', PayloadKind.JSON),
        (b"application/x-ndjson", PayloadKind.NDJSON),
        (b"application/vnd.apache.arrow.stream", PayloadKind.ARROW),
        (b"text/plain", PayloadKind.RAW),
        (b"application/json-seq", PayloadKind.RAW),
        (b"", PayloadKind.RAW),
    ],
)
def test_the_content_type_chooses_the_form(content_type: bytes, kind: PayloadKind) -> None:
    # Twice: the second one comes from the table of known types.
    assert read_headers([(b"content-type", content_type)]).kind is kind
    assert read_headers([(b"content-type", content_type)]).kind is kind


def test_a_body_without_content_type_is_the_message() -> None:
    assert read_headers([]).kind is PayloadKind.RAW


def test_json_in_another_charset_is_refused() -> None:
    assert refused((b"content-type", b"application/json; charset=latin-1")).code == "UNSUPPORTED_MEDIA_TYPE"


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-type", b"application/cloudevents+json")],
        [(b"content-type", b"application/cloudevents-batch+json; charset=utf-8")],
        [(b"content-type", b"application/json"), (b"ce-specversion", b"1.0")],
        [(b"ce-id", b"1")],
    ],
)
def test_cloud_events_are_not_implemented(headers: list[tuple[bytes, bytes]]) -> None:
    assert refused(*headers).code == "NOT_IMPLEMENTED"


def test_a_raw_message_takes_its_fields_from_headers() -> None:
    raw = read_headers(
        [
            (b"x-lakemq-tags", b"AA"),
            (b"x-lakemq-keys", b"AA1 AA2"),
            (b"x-lakemq-property-colour", "grün".encode()),
            (b"x-lakemq-property-a-b", b"x"),
            (b"x-lakemq-sharding-key", b"s"),
            (b"x-lakemq-queue-id", b"3"),
            (b"x-lakemq-flag", b"-1"),
            (b"x-lakemq-delay-level", b"2"),
            (b"x-lakemq-message-id", b"id"),
        ]
    ).fields
    assert raw is not None
    assert (raw.tags, raw.keys, raw.sharding_key, raw.queue_id) == ("AA", ["AA1", "AA2"], "s", 3)
    assert (raw.flag, raw.delay_level, raw.message_id) == (-1, 2, "id")
    assert raw.properties == [("colour", "grün"), ("a-b", "x")]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (b"x-lakemq-deliver-at", b"1", "NOT_IMPLEMENTED"),
        (b"x-lakemq-delay-ms", b"1", "NOT_IMPLEMENTED"),
        (b"x-lakemq-tag", b"AA", "ARGUMENT_ILLEGAL"),
        (b"x-lakemq-queue-id", b"one", "MESSAGE_ILLEGAL"),
        (b"x-lakemq-queue-id", b"4294967296", "MESSAGE_ILLEGAL"),
        (b"x-lakemq-tags", b"\xff", "MESSAGE_ILLEGAL"),
    ],
)
def test_a_raw_header_that_cannot_be_meant_is_refused_by_its_name(
    name: bytes, value: bytes, code: str
) -> None:
    error = refused((name, value))
    assert error.code == code
    assert error.context["header"].lower().encode() == name


def test_message_headers_beside_a_json_body_are_refused() -> None:
    error = refused((b"content-type", b"application/json"), (b"x-lakemq-tags", b"AA"))
    assert error.code == "ARGUMENT_ILLEGAL"
    assert error.context["header"] == "X-LakeMQ-Tags"


@pytest.mark.parametrize("key", [b"k", b"!" * 255])
def test_an_idempotency_key_has_up_to_255_visible_characters(key: bytes) -> None:
    assert read_headers([(b"idempotency-key", key)]).idempotency_key == key.decode()


@pytest.mark.parametrize("key", [b"", b"a b", b"\xc3\xa9", b"k" * 256])
def test_another_idempotency_key_is_refused(key: bytes) -> None:
    assert refused((b"idempotency-key", key)).context["header"] == "Idempotency-Key"


def test_two_idempotency_keys_are_refused() -> None:
    assert refused((b"idempotency-key", b"a"), (b"idempotency-key", b"b")).code == "ARGUMENT_ILLEGAL"


@pytest.mark.parametrize(
    ("value", "one_way"),
    [
        (b"respond-async", True),
        (b"wait=5, Respond-Async", True),
        (b"respond-async; x=1", True),
        (b"return=minimal", False),
    ],
)
def test_prefer_respond_async_is_one_way(value: bytes, one_way: bool) -> None:
    assert read_headers([(b"prefer", value)]).one_way is one_way


@pytest.mark.parametrize(
    ("value", "coding"), [(b"gzip", "gzip"), (b"X-GZIP", "gzip"), (b"zstd", "zstd"), (b"identity", None)]
)
def test_known_content_encodings(value: bytes, coding: str | None) -> None:
    assert read_headers([(b"content-encoding", value)]).coding == coding


@pytest.mark.parametrize("value", [b"br", b"gzip, gzip", b"deflate"])
def test_other_content_encodings_are_refused(value: bytes) -> None:
    assert refused((b"content-encoding", value)).code == "UNSUPPORTED_MEDIA_TYPE"


def test_the_length_is_read() -> None:
    assert read_headers([(b"content-length", b"12"), (b"expect", b"100-continue")]).length == 12
