"""The messages with which two brokers get to know each other, before any offset counts.

Owns their fields and their form: a JSON object in the body of a frame.

The slave says HELLO, the master CHALLENGE, the slave PROOF, the master WELCOME; instead of any of them
either says REFUSAL and closes. Both prove that they know the cluster's secret by an HMAC over all that was
said before, which has a random number of each.

Invariants: an unknown field is passed over, so that a later version may say more; a missing one, one of
another type or outside its bounds is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from ha_replicator.wire.frames import Frame, FrameError, FrameKind

MAX_EPOCHS = 10_000
MAX_OFFSET = (1 << 63) - 1
MAX_SNAPSHOT_BYTES = 1 << 30
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,127}")
_NONCE = re.compile(r"[0-9a-f]{32,64}")
_DIGEST = re.compile(r"([0-9a-f]{64})?")
_CODE = re.compile(r"[A-Z_]{1,64}")
_DETAIL = re.compile(r"[^\x00-\x1f\x7f-\x9f]{0,1024}")
_SHAPE = re.compile(r"[ -~]{1,1024}")
_FLUSH = re.compile(r"sync|async")


@dataclass(frozen=True, slots=True)
class Hello:
    """Who the slave is.

    Attributes:
        seen_epoch: The highest epoch it heard of: a master of a lower one is none any more.
        shape: What both stores must have alike, in words.
    """

    cluster: str
    broker_name: str
    broker_id: int
    seen_epoch: int
    shape: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """Who the master is.

    Attributes:
        epoch: It is the master of.
        flush: ``sync``: what the slave reports must be on its disk.
        authenticated: Whether both must prove that they know the secret.
    """

    cluster: str
    broker_name: str
    epoch: int
    flush: Literal["sync", "async"]
    authenticated: bool
    nonce: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What the slave's log is: (epoch, first byte) of each epoch, its first byte, its flushed end.

    Attributes:
        snapshot: It has no store yet: where the master's log does not begin at 0, it wants the state, too.
    """

    digest: str
    epochs: list[tuple[int, int]]
    first: int
    end: int
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Welcome:
    """Where the slave's log goes on.

    Attributes:
        common: Up to there both logs are the same; the slave cuts its own there, then reports it.
        log_digest: CRC-32 of [log_digest_from, common) of the master's log.
        epochs: The master's, to a slave that gets a snapshot; else none.
        snapshot_offset: The log offset as of which the snapshot is.
        snapshot_bytes: How long it is; 0: none comes.
        snapshot_digest: SHA-256 of it.
    """

    digest: str
    common: int
    log_digest_from: int
    log_digest: int
    epochs: list[tuple[int, int]]
    snapshot_offset: int = 0
    snapshot_bytes: int = 0
    snapshot_digest: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing comes of it.

    Attributes:
        epoch: The highest that the speaker heard of.
    """

    code: str
    detail: str
    epoch: int


Message = Hello | Challenge | Proof | Welcome | Refusal
MessageT = TypeVar("MessageT", Hello, Challenge, Proof, Welcome, Refusal)


def _text(form: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and form.fullmatch(value) is not None


def _number(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _are_epochs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_EPOCHS
        and all(isinstance(pair, list) and len(pair) == 2 and all(map(_offset, pair)) for pair in value)
    )


_offset = _number(0, MAX_OFFSET)
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "cluster": _text(_NAME),
    "broker_name": _text(_NAME),
    "broker_id": _number(1, (1 << 31) - 1),
    "seen_epoch": _offset,
    "shape": _text(_SHAPE),
    "epoch": _offset,
    "nonce": _text(_NONCE),
    "flush": _text(_FLUSH),
    "authenticated": lambda value: type(value) is bool,
    "digest": _text(_DIGEST),
    "epochs": _are_epochs,
    "snapshot": lambda value: type(value) is bool,
    "snapshot_offset": _offset,
    "snapshot_bytes": _number(0, MAX_SNAPSHOT_BYTES),
    "snapshot_digest": _text(_DIGEST),
    "first": _offset,
    "end": _offset,
    "common": _offset,
    "log_digest_from": _offset,
    "log_digest": _number(0, (1 << 32) - 1),
    "code": _text(_CODE),
    "detail": _text(_DETAIL),
}
"""By a field's name; one name means the same in all messages."""

_KIND: dict[type[Message], FrameKind] = {
    Hello: FrameKind.HELLO,
    Challenge: FrameKind.CHALLENGE,
    Proof: FrameKind.PROOF,
    Welcome: FrameKind.WELCOME,
    Refusal: FrameKind.REFUSAL,
}


def frame_of(message: Message) -> Frame:
    """Returns the frame of a message."""
    return Frame(_KIND[type(message)], body=json.dumps(asdict(message)).encode())


def decode(shape: type[MessageT], frame: Frame) -> MessageT:
    """Reads a message.

    Raises:
        FrameError: The body is no such message.
    """
    try:
        found = json.loads(frame.body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"{shape.__name__}: its body is no JSON") from error
    if not isinstance(found, dict):
        raise FrameError(f"{shape.__name__}: its body is no object")
    fields = {}
    for name in shape.__dataclass_fields__:
        if name not in found or not _CHECKS[name](found[name]):
            raise FrameError(f"{shape.__name__}: {name} is missing or illegal")
        fields[name] = found[name]
    if "epochs" in fields:
        fields["epochs"] = [(epoch, start) for epoch, start in fields["epochs"]]
    return shape(**fields)
