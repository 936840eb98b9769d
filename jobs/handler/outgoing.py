"""What a verdict asks to send, made plain.

Owns its bounds, and the check of what a broker would refuse for good: found here it is an error of the
handler's call, not of a stream. Pure.

Invariants: what passes is plain data, and a broker takes it (tests hold this against the store's own check).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakemq.client.message import encode_json
from lakemq.handler import Outgoing

MOST_MESSAGES = 100
"""Messages of one verdict."""
MOST_BYTES = 4 << 20
"""Of the messages of one verdict together: what a broker takes as one message by default."""

CAUSE = "LMQ_CAUSE"
"""Property of a sent message: the id of the message whose verdict sent it."""
CAUSE_GROUP = "LMQ_CAUSE_GROUP"
"""Property of a sent message: the group whose verdict it was."""

Plain = dict[str, Any]
"""The fields of `delta_tables.table.OUTBOX`, but for the message's id."""

_MOST_DELAY_LEVEL = 2**31 - 1
_RESERVED = frozenset(
    (
        *(
            "CHECK_IMMUNITY_TIME_IN_SECONDS",
            "DELAY",
            "KEYS",
            "MAX_OFFSET",
            "MAX_RECONSUME_TIMES",
            "MIN_OFFSET",
        ),
        *("PGROUP", "REAL_QID", "REAL_TOPIC", "RECONSUME_TIME", "TAGS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"),
        *("TIMER_DELIVER_MS", "TRANSACTION_CHECK_TIMES", "TRAN_MSG", "UNIQ_KEY", "WAIT", "__CRC32#"),
        "__SHARDINGKEY",
    )
)
"""Names of properties that belong to the store; `message/reserved.rs` has them there."""
_INTERNAL_PREFIX = "__LMQ_"
_CONTROL = frozenset((*map(chr, range(0x20)), "\x7f"))


def plain_messages(send: Any, carried: Callable[[], Mapping[str, str]] = dict) -> tuple[Plain, ...]:
    """The messages of a verdict.

    Args:
        send: what it holds.
        carried: gives the properties that say what span sent them; a message that has one of them of its own
            keeps to its own.

    Raises:
        TypeError, ValueError: They are none, too many or too large, or no broker takes one of them.
    """
    given = tuple(send)
    if len(given) > MOST_MESSAGES:
        raise ValueError(f"a verdict sends {MOST_MESSAGES} messages at most, not {len(given)}")
    span = carried() if given else {}
    plain = tuple(_plain(message, span) for message in given)
    size = sum(map(_size, plain))
    if size > MOST_BYTES:
        raise ValueError(f"the messages of a verdict take {MOST_BYTES:,} bytes at most, not {size:,}")
    return plain


def _plain(message: Any, carried: Mapping[str, str]) -> Plain:
    if not isinstance(message, Outgoing):
        raise TypeError(f"a verdict sends Outgoing, not {type(message).__name__}")
    return {
        "topic": _text(message.topic, "a topic"),
        "keys": [_key(key) for key in _keys(message.keys)],
        "tags": None if message.tags is None else _tag(message.tags) or None,
        "properties": _properties(message.properties, carried),
        "sharding_key": None
        if message.sharding_key is None
        else _text(message.sharding_key, "a sharding key") or None,
        "delay_level": _delay_level(message.delay_level),
        "body": _body(message.body),
    }


def _body(body: Any) -> bytes:
    if isinstance(body, str):
        made = _text(body, "a body", controls=True).encode()
    elif isinstance(body, (bytes, bytearray, memoryview)):
        made = bytes(body)
    elif isinstance(body, (Mapping, list, tuple)):
        made = encode_json(body)
    else:
        raise TypeError(f"a body is bytes, a text, a mapping or a list, not {type(body).__name__}")
    if not made:
        raise ValueError("a message that is sent has a body, and it is not empty")
    return made


def _keys(keys: Any) -> Iterable[Any]:
    return (keys,) if isinstance(keys, str) else tuple(keys)


def _key(key: Any) -> str:
    text = _text(key, "a key")
    if not text or any(map(str.isspace, text)):
        raise ValueError(f"a key is not empty and holds no white space: {text!r}")
    return text


def _tag(tag: Any) -> str:
    """As `filter/tags.rs` has it: an expression can ask for the tag."""
    text = _text(tag, "tags")
    if "|" in text or "&&" in text or text == "*" or text.strip() != text:
        raise ValueError(
            f"no reader could ask for the tag {text!r}: a message has one, without '|' and '&&', without "
            "white space around it, and not '*'"
        )
    return text


def _properties(properties: Any, carried: Mapping[str, str]) -> list[tuple[str, str]]:
    made = {}
    for name, value in dict(properties).items():
        made[_text(name, "a property's name")] = _text(value, "a property's value")
    # A handler may hand on what it got: these are this message's own.
    made.pop(CAUSE, None)
    made.pop(CAUSE_GROUP, None)
    if carried.keys().isdisjoint(made):
        made |= carried
    for name, value in made.items():
        if not name or not value:
            raise ValueError(f"a property has a name and a value, neither is empty: {name!r}")
        if name in _RESERVED or name.startswith(_INTERNAL_PREFIX):
            raise ValueError(f"the name of the property {name!r} belongs to the store")
    return list(made.items())


def _delay_level(level: Any) -> int:
    plain = operator.index(level)
    if not 0 <= plain <= _MOST_DELAY_LEVEL:
        raise ValueError(f"{plain} is not a delay level: 0 is at once, levels start at 1")
    return plain


def _text(value: Any, what: str, *, controls: bool = False) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text, not {type(value).__name__}")
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds half a character, which is no UTF-8: {text!r}") from None
    if not controls and not _CONTROL.isdisjoint(text):
        raise ValueError(f"{what} holds a control character: {text!r}")
    return text


def _size(message: Plain) -> int:
    texts = [message["topic"], message["tags"], message["sharding_key"], *message["keys"]]
    texts += [text for pair in message["properties"] for text in pair]
    return len(message["body"]) + sum(len(text.encode()) for text in texts if text is not None)
