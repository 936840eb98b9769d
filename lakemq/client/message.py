"""A message to send and a message read, in the words of the HTTP API.

Owns the translation between Python values and the API's JSON objects. A body is bytes to the broker; a
``str`` is its UTF-8, a mapping or list is sent as JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from store_native.errors import InvalidRequest

Body = bytes | str | Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send.

    Attributes:
        body: Bytes, text, or a JSON value (mapping or list).
        tags: The tag consumers filter by; one per message.
        keys: What the message can be found by (``lakemq message find --key``).
        properties: Free text properties.
        sharding_key: Messages with the same one go to the same queue, hence stay in order.
        queue_id: The queue, when the caller chooses it itself.
        flag: An integer for the application's own use.
        delay_level: 1..18, delivered after that level's delay; 0 is at once.
        message_id: The id, when the caller has one; else the broker makes it.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, the sharding key is no text: a client works out whose it is. Other
            fields are looked at when the message is sent.
    """

    body: Body
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    queue_id: int | None = None
    flag: int = 0
    delay_level: int = 0
    message_id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sharding_key, str | None):
            raise _of_another_type("sharding_key", "a string", self.sharding_key)

    def to_json(self) -> dict[str, Any]:
        """Returns the API's message object; what is unset is left out.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, a field is of another type; it is named.
        """
        name, value = body_field(self.body)
        message: dict[str, Any] = {name: value}
        if self.tags is not None:
            message["tags"] = _text("tags", self.tags)
        if keys := _keys(self.keys):
            message["keys"] = keys
        if properties := _properties(self.properties):
            message["properties"] = properties
        if self.sharding_key is not None:
            message["sharding_key"] = self.sharding_key
        if self.queue_id is not None:
            message["queue_id"] = _number("queue_id", self.queue_id)
        for name, number in (("flag", self.flag), ("delay_level", self.delay_level)):
            if number is not None and _number(name, number):
                message[name] = number
        if self.message_id is not None:
            message["message_id"] = _text("message_id", self.message_id)
        return message

    def encoded(self) -> bytes:
        """Returns the API's message object as JSON.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, as :meth:`to_json`, or a text that UTF-8 has no bytes for.
        """
        message = self.to_json()
        try:
            return encode_json(message)
        except UnicodeEncodeError:
            raise _without_bytes(message) from None

    def to_line(self) -> bytes:
        """Returns the message as one NDJSON line, newline included; raises as :meth:`encoded`."""
        return self.encoded() + b"\n"


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One message as the broker keeps it. Times are epoch milliseconds; hosts are ``ip:port``."""

    message_id: str
    offset_message_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    body: bytes
    keys: tuple[str, ...] = ()
    tags: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    physical_offset: int = -1
    born_timestamp: int = 0
    store_timestamp: int = 0
    born_host: str = ""
    store_host: str = ""
    reconsume_times: int = 0

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 show as replacement characters."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Parses the body as JSON; raises ValueError when it is not."""
        return json.loads(self.body)

    @classmethod
    def from_json(cls, message: Mapping[str, Any]) -> ReceivedMessage:
        """Builds a message from the API's object; fields of a newer broker are ignored."""
        return cls(
            message_id=message["message_id"],
            offset_message_id=message["offset_message_id"],
            topic=message["topic"],
            broker_name=message["broker_name"],
            queue_id=int(message["queue_id"]),
            queue_offset=int(message["queue_offset"]),
            body=_body_of(message),
            keys=tuple(message.get("keys") or ()),
            tags=message.get("tags"),
            properties=dict(message.get("properties") or {}),
            flag=int(message.get("flag", 0)),
            physical_offset=int(message.get("physical_offset", -1)),
            born_timestamp=int(message.get("born_timestamp", 0)),
            store_timestamp=int(message.get("store_timestamp", 0)),
            born_host=message.get("born_host", ""),
            store_host=message.get("store_host", ""),
            reconsume_times=int(message.get("reconsume_times", 0)),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the API's object again: ``body`` when it is UTF-8 text, else ``body_base64``."""
        name, value = body_field(self.body)
        return {
            "message_id": self.message_id,
            "offset_message_id": self.offset_message_id,
            "topic": self.topic,
            "broker_name": self.broker_name,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "physical_offset": self.physical_offset,
            "keys": list(self.keys),
            "tags": self.tags,
            name: value,
            "properties": dict(self.properties),
            "flag": self.flag,
            "born_timestamp": self.born_timestamp,
            "store_timestamp": self.store_timestamp,
            "born_host": self.born_host,
            "store_host": self.store_host,
            "reconsume_times": self.reconsume_times,
        }


def _keys(given: Sequence[str] | None) -> list[str]:
    if given is None:
        return []
    if isinstance(given, str):
        return [given] if given else []
    if isinstance(given, bytes | Mapping | Set) or not isinstance(given, Iterable):
        raise _of_another_type("keys", "a list of strings", given)
    keys = list(given)
    for at, key in enumerate(keys):
        if not isinstance(key, str):
            raise _of_another_type(f"keys[{at}]", "a string", key)
    return keys


def _properties(given: Mapping[str, str] | None) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _of_another_type("properties", "a mapping of strings", given)
    for name, value in given.items():
        if not isinstance(name, str):
            raise _of_another_type(f"the property {_shown(name)}", "named by a string", name)
        if not isinstance(value, str):
            raise _of_another_type(f"properties[{name!r:.80}]", "a string", value)
    return dict(given)


def _text(name: str, given: str) -> str:
    if not isinstance(given, str):
        raise _of_another_type(name, "a string", given)
    return given


def _number(name: str, given: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise _of_another_type(name, "a whole number", given)
    return given


def _without_bytes(message: Mapping[str, Any]) -> InvalidRequest:
    for name, value in message.items():
        try:
            encode_json(value)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            detail = f"{name} holds {character!a}, which cannot be written in UTF-8"
            return InvalidRequest("ARGUMENT_ILLEGAL", detail)
    raise AssertionError("one of them could not be encoded")


def _shown(value: object) -> str:
    """As the program wrote it, where that can be said."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - foreign code; what is wrong with the value is said all the same
        return f"of type {type(value).__name__}"


def _of_another_type(name: str, wanted: str, given: object) -> InvalidRequest:
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{name} must be {wanted}, not {type(given).__name__}")


def body_field(body: Body) -> tuple[str, Any]:
    """Chooses the API field a body travels in: ``body``, ``body_base64`` or ``body_json``."""
    if isinstance(body, str):
        return "body", body
    if isinstance(body, (bytes, bytearray, memoryview)):
        data = bytes(body)
        try:
            return "body", data.decode("utf-8")
        except UnicodeDecodeError:
            return "body_base64", base64.b64encode(data).decode("ascii")
    return "body_json", body


# Made once: json.dumps would make an encoder for every message.
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode_json(value: Any) -> bytes:
    """Writes compact UTF-8 JSON; NaN and infinities raise ValueError, JSON has none."""
    return _compact.encode(value).encode("utf-8")


def _body_of(message: Mapping[str, Any]) -> bytes:
    if "body_base64" in message:
        return base64.b64decode(message["body_base64"])
    body: str = message.get("body", "")
    return body.encode("utf-8")


def message_of(body: Body | Message, fields: Mapping[str, Any]) -> Message:
    """Returns the message that a call was given: whole, or as its body and fields.

    Raises:
        TypeError: A whole one and fields.
    """
    if isinstance(body, Message):
        if fields:
            raise TypeError("give fields inside the Message, or a body and fields")
        return body
    return Message(body, **fields)
