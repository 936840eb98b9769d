"""Lines of JSON on their way to the broker: read, shaped into message objects, cut into batches.

Owns the rule of what a line means.

Invariants: lines keep their order, a body is sent as the bytes it was written with, and every batch knows
the line numbers of its messages, so that a refusal names the line of the file. No batch leaves before every
field that is named was in a line; what waits for that is bounded.
"""

from __future__ import annotations

import json
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase
from typing import Any, Literal

from lakemq.client.message import encode_json
from lakemq.terminal.failure import CommandFailed
from lakemq.upload.named_fields import NamedFields

BODY_FIELDS = frozenset({"body", "body_base64", "body_json"})
_READ_BYTES = 1 << 20
_LINGER_S = 0.05

Meaning = Literal["auto", "message", "body", "text"]
MEANINGS: tuple[Meaning, ...] = ("auto", "message", "body", "text")


class FieldIllegal(ValueError):
    """A field of a body cannot become what the rule says."""


@dataclass(frozen=True, slots=True)
class LineRule:
    """How a line becomes a message.

    Attributes:
        meaning: ``message``: the line is a message object of the API. ``body``: it is any JSON value
            and becomes the body. ``text``: the line itself is the body, its spaces too. ``auto``: an object
            with body, body_base64 or body_json is a message, any other JSON value a body.
        key_fields: Fields of a body that become keys.
        tag_field: The field of a body that becomes the tags.
    """

    meaning: Meaning = "auto"
    key_fields: Sequence[str] = ()
    tag_field: str | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields of a body that it names."""
        return (*self.key_fields, *(() if self.tag_field is None else (self.tag_field,)))

    def shape(self, line: bytes, look: Callable[[Any], None] = lambda body: None) -> bytes:
        """Returns the API's message object for a line that is not blank, as JSON without a newline.

        Args:
            line: The line.
            look: Gets the value that becomes the body; None where the line is a message or a text.

        Raises:
            ValueError: The line is not what the rule expects.
            FieldIllegal: A field that becomes a key or the tags is an object or a list.
        """
        if self.meaning == "text":
            look(None)
            return encode_json({"body": line.removesuffix(b"\r").decode("utf-8")})
        line = line.strip()
        if self.meaning == "message":
            look(None)
            return line
        # Only looked at, never sent: numbers stay text, so that a key is spelled as in the body.
        value = json.loads(line, parse_float=str, parse_int=str, parse_constant=_refuse)
        if self.meaning == "auto" and isinstance(value, dict) and not BODY_FIELDS.isdisjoint(value):
            look(None)
            return line
        look(value)
        return self._wrap(line, value)

    def _wrap(self, line: bytes, value: Any) -> bytes:
        """Puts the line around as it is: its numbers and spaces are not ours to rewrite."""
        head: dict[str, Any] = {}
        if isinstance(value, dict):
            keys = [_text(value, name) for name in self.key_fields if value.get(name) is not None]
            if keys:
                head["keys"] = keys
            if self.tag_field is not None and value.get(self.tag_field) is not None:
                head["tags"] = _text(value, self.tag_field)
        if not head:
            return b'{"body_json":' + line + b"}"
        return encode_json(head)[:-1] + b',"body_json":' + line + b"}"


@dataclass(slots=True)
class Batch:
    """Message objects that go in one request; ``numbers`` are their lines in the input, from 1."""

    data: bytearray = field(default_factory=bytearray)
    numbers: list[int] = field(default_factory=list)

    def add(self, message: bytes, number: int) -> None:
        """Appends one message."""
        self.data += message
        self.data += b"\n"
        self.numbers.append(number)


def batches(source: BufferedIOBase, rule: LineRule, *, max_count: int, max_bytes: int) -> Iterator[Batch]:
    """Reads a source to its end and yields batches.

    A batch ends when it is full, or when the source has nothing more right now: lines typed or piped
    in slowly do not wait for company. All wait until each field of the rule was in a line.

    Args:
        source: A file or standard input, binary.
        rule: What a line means.
        max_count: Messages in a batch.
        max_bytes: Bytes in a batch; one message may be longer.

    Raises:
        CommandFailed: A line does not fit the rule; it is named. Earlier batches were yielded. Or a field of
            the rule is in no line's body: none was yielded.
    """
    batch = Batch()
    for number, message in _messages(source, rule):
        if message is not None:
            if batch.numbers and len(batch.data) + len(message) >= max_bytes:
                yield batch
                batch = Batch()
            batch.add(message, number)
        if batch.numbers and (message is None or len(batch.numbers) >= max_count):
            yield batch
            batch = Batch()
    if batch.numbers:
        yield batch


def _messages(source: BufferedIOBase, rule: LineRule) -> Iterator[tuple[int, bytes | None]]:
    """Yields numbered messages once each field was in one; None for a message: the source is idle."""
    fields = NamedFields(rule.fields)
    waiting: list[tuple[int, bytes]] = []
    size = 0
    began = False
    for number, line in _lines(source):
        if line is None:
            yield number, None
            continue
        message = _shaped(rule, line, number, fields, began=began)
        began = True
        if not fields.are_seen:
            waiting.append((number, message))
            size += len(message)
            fields.check(size, at_end=False)
            continue
        yield from waiting
        waiting.clear()
        yield number, message
    fields.check(size, at_end=True)


def _lines(source: BufferedIOBase) -> Iterator[tuple[int, bytes | None]]:
    """Yields numbered lines that are not blank; None for a line says that the source is idle."""
    number = 0
    rest = b""
    while chunk := source.read1(_READ_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield number, line
        if _idle(source):
            yield number, None
    if rest.strip():
        yield number + 1, rest


def _idle(source: BufferedIOBase) -> bool:
    """Says whether a pipe or terminal has nothing to read for a moment; a file always has."""
    try:
        readable, _, _ = select.select([source], [], [], _LINGER_S)
    except (OSError, ValueError):  # not a file of the system's (bytes in memory)
        return False
    return not readable


def _shaped(rule: LineRule, line: bytes, number: int, fields: NamedFields, *, began: bool) -> bytes:
    try:
        return rule.shape(line, fields.look)
    except FieldIllegal as error:
        raise CommandFailed(f"line {number}: {error}") from error
    except (RecursionError, ValueError) as error:
        expected = "UTF-8 text" if rule.meaning == "text" else "JSON"
        if expected == "JSON" and not began and line.lstrip()[:1] not in (b"{", b"["):
            expected += " (--as text takes lines as they are)"
        raise CommandFailed(f"line {number} is not {expected}: {error}") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no value of JSON")


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if isinstance(value, (dict, list)):
        kind = "an object" if isinstance(value, dict) else "a list"
        raise FieldIllegal(f"its field {name} is {kind}: a key or tag is text or a number")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
