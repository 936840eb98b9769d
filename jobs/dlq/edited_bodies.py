"""Other bodies for dead letters that are sent again, as an operator gives them: lines of JSON in a file.

Owns what a line may be. It names a dead letter, by its key or its message_id, and has the body; a line that
`lakemq dlq export` wrote, with another body in it, is one.

Invariants: a line that names none of the chosen dead letters, one of an earlier line, or has anything but the
body otherwise than the dead letter, is refused by its number, before anything is sent. What an earlier run
sent with the same body is passed over, so that the same command goes on after it broke off.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from delta_tables.dead_letters import DEAD_LETTERS
from jobs.dlq.choice import KEY, DeadLetterChoice, State
from jobs.dlq.export import as_object, of_table
from store_native.errors import InvalidRequest, from_code

MAX_FILE_BYTES = 256 << 20
"""The bodies are held in memory."""
_BODIES = ("body", "body_base64")
_WHOLE_AT_ONCE = 64

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    named: Mapping[str, Any]
    body: bytes

    def refusal(self, text: str) -> InvalidRequest:
        return InvalidRequest("ARGUMENT_ILLEGAL", f"--bodies line {self.number}: {text}")

    @property
    def key(self) -> Key | None:
        return None if KEY[0] not in self.named else tuple(self.named[name] for name in KEY)


@dataclass(frozen=True, slots=True)
class Edit:
    """A dead letter's other body.

    Attributes:
        line: Where it stands in the file.
        body: What is sent.
        old_sha256: Digest of the body that the dead letter has, in hexadecimal.
    """

    line: int
    body: bytes
    old_sha256: str

    @property
    def sha256(self) -> str:
        """Digest of what is sent."""
        return sha256(self.body)


@dataclass(frozen=True, slots=True)
class Edits:
    """What a file comes to among the chosen dead letters.

    Attributes:
        named: The dead letters that it names and that were not sent yet.
        changed: Those of them whose body is another one.
        sent_before: How many an earlier run has sent with the same body.
    """

    named: frozenset[Key]
    changed: Mapping[Key, Edit]
    sent_before: int

    def check_sizes(self, largest: Mapping[str, int | None]) -> None:
        """Refuses a body that is larger than its broker takes one.

        A broker takes what a group sends back in any size, as it was taken once: this was not.

        Args:
            largest: Bytes, by the broker's name.

        Raises:
            InvalidRequest: MESSAGE_TOO_LARGE.
        """
        for key, edit in self.changed.items():
            limit, size = largest.get(key[KEY.index("broker_name")]), len(edit.body)
            if limit is not None and size > limit:
                raise from_code(
                    "MESSAGE_TOO_LARGE",
                    f"--bodies line {edit.line}: the body has {size:,} bytes; "
                    f"{key[KEY.index('broker_name')]} takes {limit:,} at most",
                )


class EditedBodies:
    """The lines of a file.

    Args:
        file: The file.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, the file is larger than MAX_FILE_BYTES, has no line, or a line is
            wrong, which is named.
        OSError: It cannot be read.
    """

    def __init__(self, file: Path) -> None:
        with file.open("rb") as source:
            data = source.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise from_code("ARGUMENT_ILLEGAL", f"--bodies: {file} is larger than {MAX_FILE_BYTES:,} bytes")
        lines = enumerate(data.split(b"\n"), 1)
        self._lines = [_line(number, line) for number, line in lines if line.strip()]
        if not self._lines:
            raise from_code("ARGUMENT_ILLEGAL", f"--bodies: {file} has no line")

    def among(self, choice: DeadLetterChoice) -> Edits:
        """Finds the dead letters that the lines name, as they are now.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, a line names none that is chosen, more than one, or one of an
                earlier line; or has a field that is not the dead letter's.
        """
        known = choice.rows((*KEY, "message_id"), state="any", with_audit=True).to_pylist()
        by_key = {_key(row): row for row in known}
        by_id = defaultdict(list)
        for row in known:
            by_id[row["message_id"]].append(row)
        waiting: dict[Key, _Line] = {}
        lines: dict[Key, int] = {}
        sent_before: dict[Key, _Line] = {}
        for line in self._lines:
            row = _named(line, by_key, by_id, choice.state)
            key = _key(row)
            if key in lines:
                raise line.refusal(f"the dead letter of line {lines[key]} again")
            lines[key] = line.number
            (waiting if row["replayed_at"] is None else sent_before)[key] = line
        _check_sent(choice, by_key, sent_before)
        return Edits(frozenset(waiting), dict(_changed(choice, waiting)), len(sent_before))


def sha256(body: bytes) -> str:
    """The digest of a body, in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def _line(number: int, line: bytes) -> _Line:
    given = _Line(number, {}, b"")
    try:
        said = json.loads(line)
    except (RecursionError, ValueError) as error:
        raise given.refusal(f"it is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise given.refusal("it is no object with a dead letter's key and its body")
    if unknown := sorted(said.keys() - {*DEAD_LETTERS.column_names, *_BODIES}):
        raise given.refusal(f"{unknown[0]!r} is no field of a dead letter")
    if len(bodies := [name for name in _BODIES if name in said]) != 1:
        raise given.refusal("it takes one of body (text) and body_base64")
    named = {name: value for name, value in said.items() if name not in _BODIES}
    lacking = [name for name in KEY if name not in named]
    if lacking and (len(lacking) < len(KEY) or not isinstance(named.get("message_id"), str)):
        raise given.refusal(f"it names a dead letter by message_id, or by {', '.join(KEY)}")
    for name in KEY:
        wanted = str if name in ("topic", "broker_name") else int
        if name in named and type(named[name]) is not wanted:
            raise given.refusal(f"{name} is a {'text' if wanted is str else 'whole number'}")
    return _Line(number, named, _body(given, bodies[0], said[bodies[0]]))


def _body(line: _Line, name: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise line.refusal(f"{name} is a text, JSON too: not {type(value).__name__}")
    try:
        body = value.encode("utf-8") if name == "body" else base64.b64decode(value, validate=True)
    except UnicodeEncodeError:
        raise line.refusal("body cannot be written in UTF-8") from None
    except (binascii.Error, ValueError) as error:
        raise line.refusal(f"body_base64 is none: {error}") from None
    if not body:
        raise line.refusal(f"{name} is empty, which no broker takes")
    return body


def _named(
    line: _Line,
    by_key: Mapping[Key, Mapping[str, Any]],
    by_id: Mapping[str, Sequence[Mapping[str, Any]]],
    state: State,
) -> Mapping[str, Any]:
    """The dead letter that a line names, which is chosen or was sent before."""
    if line.key is not None:
        found = [by_key[line.key]] if line.key in by_key else []
    else:
        deaths = by_id.get(line.named["message_id"], [])
        found = [row for row in deaths if row["replayed_at"] is None] or list(deaths)
    if not found:
        raise line.refusal("it names none of the chosen dead letters")
    if len(found) > 1:
        raise line.refusal(f"the message was given up {len(found)} times: name it by {', '.join(KEY)}")
    row = found[0]
    if row["replayed_at"] is None and (row["discarded_at"] is not None) != (state == "discarded"):
        raise line.refusal(
            "the dead letter is not discarded, and --discarded chooses those that are"
            if state == "discarded"
            else f"the dead letter was discarded by {row['operator']}; --discarded chooses these"
        )
    return row


def _check_sent(
    choice: DeadLetterChoice, known: Mapping[Key, Mapping[str, Any]], sent: Mapping[Key, _Line]
) -> None:
    """Refuses another body for what was sent before."""
    changed = dict(_changed(choice, sent))
    for key, line in sent.items():
        now = changed[key].sha256 if key in changed else None
        if now != known[key]["replayed_body_sha256"]:
            at = f"{known[key]['replayed_at']:%Y-%m-%d %H:%M:%S}"
            raise line.refusal(
                f"the dead letter was replayed at {at} by {known[key]['operator']}, with another body"
            )


def _changed(choice: DeadLetterChoice, lines: Mapping[Key, _Line]) -> Iterator[tuple[Key, Edit]]:
    """Those whose body is another one; looks at what else their lines say."""
    keys = list(lines)
    for first in range(0, len(keys), _WHOLE_AT_ONCE):
        some = keys[first : first + _WHOLE_AT_ONCE]
        table = pa.table({name: [key[at] for key in some] for at, name in enumerate(KEY)})
        for letter in of_table(choice.named(table)).to_pylist():
            line, there = lines[_key(letter)], as_object(letter)
            for name, value in line.named.items():
                if there[name] != value:
                    raise line.refusal(f"{name} is not the dead letter's: a body alone can be another one")
            old = letter["body"] or b""
            if line.body != old:
                yield _key(letter), Edit(line.number, line.body, sha256(old))


def _key(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in KEY)
