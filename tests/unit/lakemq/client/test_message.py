"""Messages become the API's objects and come back unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemq.client.message import Message, ReceivedMessage, body_field
from store_native.errors import InvalidRequest

RECEIVED = {
    "message_id": "7F0000010007D81A7D0000000000000A",
    "offset_message_id": "7F00000100001F9A000000000000002A",
    "topic": "orders",
    "broker_name": "broker-a",
    "queue_id": 1,
    "queue_offset": 42,
    "physical_offset": 9_007_199_254_740_993,
    "keys": ["17", "eu"],
    "tags": "created",
    "body": "{}",
    "properties": {"colour": "grün"},
    "flag": 3,
    "born_timestamp": 1_795_219_200_000,
    "store_timestamp": 1_795_219_200_005,
    "born_host": "127.0.0.1:50000",
    "store_host": "127.0.0.1:8090",
    "reconsume_times": 2,
}


def test_unset_fields_are_left_out() -> None:
    assert Message("hello").to_json() == {"body": "hello"}


@pytest.mark.parametrize("key", [17, b"17", 1.5, ["17"]])
def test_a_sharding_key_is_a_text(key: Any) -> None:
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL: sharding_key must be a string, not"):
        Message("hello", sharding_key=key)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tags": 17}, "tags must be a string, not int"),
        ({"tags": ["a"]}, "tags must be a string, not list"),
        ({"keys": [17]}, "keys[0] must be a string, not int"),
        ({"keys": ["a", b"b"]}, "keys[1] must be a string, not bytes"),
        ({"keys": 17}, "keys must be a list of strings, not int"),
        ({"keys": b"17"}, "keys must be a list of strings, not bytes"),
        ({"keys": {"a": "b"}.values()}, None),
        ({"properties": {"a": "b", "colour": 3}}, "properties['colour'] must be a string, not int"),
        ({"properties": {"colour": None}}, "properties['colour'] must be a string, not NoneType"),
        ({"properties": ["colour"]}, "properties must be a mapping of strings, not list"),
        ({"keys": 0}, "keys must be a list of strings, not int"),
        ({"keys": b""}, "keys must be a list of strings, not bytes"),
        ({"keys": {"a"}}, "keys must be a list of strings, not set"),
        ({"keys": {"a": "b"}}, "keys must be a list of strings, not dict"),
        ({"properties": {1: "a"}}, "the property 1 must be named by a string, not int"),
        ({"properties": {b"a": "b"}}, "the property b'a' must be named by a string, not bytes"),
        ({"properties": []}, "properties must be a mapping of strings, not list"),
        ({"flag": False}, "flag must be a whole number, not bool"),
        ({"delay_level": ""}, "delay_level must be a whole number, not str"),
        ({"tags": "\ud800"}, r"tags holds '\ud800', which cannot be written in UTF-8"),
        ({"properties": {"a": "\ud800"}}, r"properties holds '\ud800', which cannot be written in UTF-8"),
        ({"message_id": 17}, "message_id must be a string, not int"),
        ({"queue_id": "0"}, "queue_id must be a whole number, not str"),
        ({"flag": 1.5}, "flag must be a whole number, not float"),
        ({"delay_level": True}, "delay_level must be a whole number, not bool"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_its_name(fields: dict[str, Any], said: str | None) -> None:
    message = Message("hello", **fields)
    if said is None:
        assert message.to_json() == {"body": "hello", "keys": ["b"]}
        return
    with pytest.raises(InvalidRequest) as refused:
        message.to_line()
    assert (refused.value.code, refused.value.detail) == ("ARGUMENT_ILLEGAL", said)


def test_nothing_given_for_a_field_is_an_unset_one() -> None:
    unset: Any = None
    message = Message("hello", keys=unset, properties=unset, flag=unset, delay_level=unset)
    assert message.to_json() == {"body": "hello"}


def test_every_field_is_sent_under_the_name_of_the_api() -> None:
    message = Message(
        {"id": 17},
        tags="created",
        keys=("17",),
        properties={"colour": "red"},
        sharding_key="eu",
        queue_id=0,
        flag=1,
        delay_level=3,
        message_id="mine",
    )
    assert message.to_json() == {
        "body_json": {"id": 17},
        "tags": "created",
        "keys": ["17"],
        "properties": {"colour": "red"},
        "sharding_key": "eu",
        "queue_id": 0,
        "flag": 1,
        "delay_level": 3,
        "message_id": "mine",
    }


def test_one_key_given_as_text_is_one_key_not_its_letters() -> None:
    assert Message("x", keys="UA1545").to_json()["keys"] == ["UA1545"]


def test_bytes_that_are_not_utf8_travel_as_base64() -> None:
    assert body_field(b"\xff\x00") == ("body_base64", "/wA=")


def test_a_line_holds_no_newline_but_its_last() -> None:
    line = Message("two\nlines").to_line()
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"body": "two\nlines"}


def test_a_body_json_has_no_name_for_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        Message({"x": float("nan")}).to_line()


@given(st.binary())
def test_received_body_survives_the_trip_through_json(body: bytes) -> None:
    name, value = body_field(body)
    message = {key: field for key, field in RECEIVED.items() if key != "body"}
    received = ReceivedMessage.from_json({**message, name: value})
    assert received.body == body
    assert ReceivedMessage.from_json(received.to_json()) == received


def test_received_message_keeps_every_field() -> None:
    assert ReceivedMessage.from_json(RECEIVED).to_json() == RECEIVED


def test_integers_sent_as_text_because_json_readers_round_them_are_integers_again() -> None:
    received = ReceivedMessage.from_json({**RECEIVED, "physical_offset": "9007199254740993"})
    assert received.physical_offset == 9_007_199_254_740_993


def test_fields_of_a_newer_broker_are_ignored() -> None:
    assert ReceivedMessage.from_json({**RECEIVED, "transaction_id": "T"}).message_id == RECEIVED["message_id"]
