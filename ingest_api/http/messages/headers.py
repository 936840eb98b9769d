"""Reads the headers of a send, in bytes, in one pass.

Owns which header means what; pure.

Invariants: a header this broker does not implement is refused, not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ingest_api.broker.send_request import MessageFields, PayloadKind
from store_native.errors import InvalidRequest
from store_native.names import ORDER_VERSION_HEADER

MAX_IDEMPOTENCY_KEY = 255
_VISIBLE = re.compile(rb"[\x21-\x7e]{1,255}")
_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_DIGITS = re.compile(rb"[0-9]{1,19}")
_KNOWN_CODINGS = frozenset({"gzip", "zstd"})
_OWN = b"x-lakemq-"
_PROPERTY = b"property-"
_ORDER_VERSION = ORDER_VERSION_HEADER.lower().encode()


_KINDS = {
    b"application/json": PayloadKind.JSON,
    b"application/x-ndjson": PayloadKind.NDJSON,
    b"application/vnd.apache.arrow.stream": PayloadKind.ARROW,
}


@dataclass(slots=True)
class SendHeaders:
    """What a send's headers ask for.

    Attributes:
        length: Content-Length, or None for a chunked body.
        coding: The Content-Encoding to undo.
        fields: Only for PayloadKind.RAW.
        one_way: ``Prefer: respond-async``.
        order_version: Of the list of an ordered topic's brokers that the sender went by.
    """

    kind: PayloadKind = PayloadKind.RAW
    length: int | None = None
    coding: str | None = None
    idempotency_key: str | None = None
    one_way: bool = False
    order_version: int | None = None
    fields: MessageFields | None = None


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> SendHeaders:
    """Reads the headers of a send.

    Args:
        headers: Names in lower case, as ASGI gives them.

    Raises:
        InvalidRequest: A value is illegal, or asks for what is not implemented.
    """
    found = SendHeaders()
    content_type = b""
    own: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length":
            # Digits only: the HTTP parser has refused anything else.
            found.length = int(value)
        elif name[:9] == _OWN:
            own.append((name[9:], value))
        elif name == b"idempotency-key":
            found.idempotency_key = _idempotency_key(value, found.idempotency_key)
        elif name == b"content-encoding":
            found.coding = _coding(value)
        elif name == b"prefer":
            found.one_way = found.one_way or _asks_respond_async(value)
        elif name == _ORDER_VERSION:
            found.order_version = _order_version(value)
        elif name[:3] == b"ce-":
            raise _cloud_events()
    kind = _known_types.get(content_type)
    if kind is None:
        kind = _kind(content_type)
    found.kind = kind
    if kind is PayloadKind.RAW:
        found.fields = _message_fields(own)
    elif own:
        shown = _shown(own[0][0])
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"{shown} belongs to raw bodies; here the body carries the fields",
            header=shown,
        )
    return found


# What clients send that means nothing to a send. Content-Length is the parser's.
_MEANINGLESS = frozenset(
    (b"host", b"content-length", b"user-agent", b"accept", b"accept-encoding", b"connection", b"keep-alive")
)


def plain_kind(headers: Iterable[tuple[bytes, bytes]]) -> PayloadKind | None:
    """Returns the body's kind when the headers say nothing else; None when :func:`read_headers` must look."""
    kind = None
    for name, value in headers:
        if name == b"content-type" and kind is None:
            kind = _known_types.get(value)
            if kind is None:
                return None
        elif name not in _MEANINGLESS:
            return None
    return kind


# Content-Type as clients write it -> kind. Bounded: whatever a client may invent is parsed again.
_known_types: dict[bytes, PayloadKind] = {}


def _kind(content_type: bytes) -> PayloadKind:
    media, _, parameters = content_type.partition(b";")
    media = media.strip().lower()
    if media.startswith(b"application/cloudevents"):
        raise _cloud_events()
    kind = _KINDS.get(media, PayloadKind.RAW)
    if kind in (PayloadKind.JSON, PayloadKind.NDJSON):
        charset = re.search(rb"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
        if charset and charset[1].lower() not in (b"utf-8", b"utf8", b"us-ascii"):
            raise InvalidRequest(
                "UNSUPPORTED_MEDIA_TYPE", "JSON is read as UTF-8 only", header="Content-Type"
            )
    if len(_known_types) < 256 and len(content_type) < 256:
        _known_types[content_type] = kind
    return kind


def _cloud_events() -> InvalidRequest:
    return InvalidRequest("NOT_IMPLEMENTED", "CloudEvents are not implemented yet; nothing was stored")


def _idempotency_key(value: bytes, earlier: str | None) -> str:
    if earlier is not None or not _VISIBLE.fullmatch(value):
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"Idempotency-Key must be given once, with 1 to {MAX_IDEMPOTENCY_KEY} visible ASCII characters",
            header="Idempotency-Key",
            limit=MAX_IDEMPOTENCY_KEY,
        )
    return value.decode("ascii")


def _order_version(value: bytes) -> int:
    if not _DIGITS.fullmatch(value):
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            f"{ORDER_VERSION_HEADER} is the version of an ordered topic's list, a whole number",
            header=ORDER_VERSION_HEADER,
        )
    return int(value)


def _coding(value: bytes) -> str | None:
    coding = value.decode("latin-1").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding == "x-gzip":
        return "gzip"
    if coding not in _KNOWN_CODINGS:
        raise InvalidRequest(
            "UNSUPPORTED_MEDIA_TYPE",
            f"Content-Encoding {coding} is not gzip or zstd",
            header="Content-Encoding",
        )
    return coding


def _asks_respond_async(value: bytes) -> bool:
    return any(part.partition(b";")[0].strip().lower() == b"respond-async" for part in value.split(b","))


def _message_fields(own: list[tuple[bytes, bytes]]) -> MessageFields:
    message = MessageFields()
    for name, value in own:
        text = _text(name, value)
        if name.startswith(_PROPERTY):
            message.properties.append((name[len(_PROPERTY) :].decode("latin-1"), text))
        elif name == b"tags":
            message.tags = text
        elif name == b"keys":
            message.keys = text.split()
        elif name == b"sharding-key":
            message.sharding_key = text
        elif name == b"message-id":
            message.message_id = text
        elif name == b"queue-id":
            message.queue_id = _integer(name, value)
        elif name == b"flag":
            message.flag = _integer(name, value)
        elif name == b"delay-level":
            message.delay_level = _integer(name, value)
        elif name in (b"deliver-at", b"delay-ms"):
            raise InvalidRequest(
                "NOT_IMPLEMENTED",
                "delivery at a given time is not implemented yet; use a delay level. Nothing was stored",
                header=_shown(name),
            )
        else:
            raise InvalidRequest("ARGUMENT_ILLEGAL", f"{_shown(name)} is not known", header=_shown(name))
    return message


def _text(name: bytes, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest("MESSAGE_ILLEGAL", f"{_shown(name)} is not UTF-8", header=_shown(name)) from None


def _integer(name: bytes, value: bytes) -> int:
    if not _INTEGER.fullmatch(value) or not -(1 << 31) <= int(value) < 1 << 31:
        raise InvalidRequest(
            "MESSAGE_ILLEGAL", f"{_shown(name)} is not a 32-bit integer", header=_shown(name)
        )
    return int(value)


def _shown(name: bytes) -> str:
    return "X-LakeMQ-" + "-".join(part.capitalize() for part in name.decode("latin-1").split("-"))
