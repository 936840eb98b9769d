"""Frames: the one shape of everything that two LakeMQ brokers say to each other about the log.

Owns encoding, decoding and the bounds. 56 bytes of header, integers big-endian:

====== ===== ==========================================================================
offset bytes
====== ===== ==========================================================================
0      4     ``LMHA``
4      1     version, 1
5      1     kind
6      2     zero
8      4     bytes of the body
12     4     CRC-32 of the header without this field, and the body
16     8     offset: of the range (DATA), of the end of what is held (REPORT), of a piece (SNAPSHOT)
24     8     where the log goes on behind the range (DATA)
32     8     epoch that writes at the offset (DATA, HEARTBEAT); newest that is held (REPORT)
40     8     epoch of who says it
48     8     confirmed offset of who says it
====== ===== ==========================================================================

Invariants: a frame whose magic, version, kind, length or checksum is wrong is an error, after which the
connection is of no more use; nothing of it is given out. No more than one frame's bound is held in memory.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"LMHA"
VERSION = 1
MAX_MESSAGE_BYTES = 1 << 20
"""Of a message of the handshake; 10,000 epochs are half of it."""

_FIELDS = struct.Struct(">4sBBHI")
_CRC = struct.Struct(">I")
_NUMBERS = struct.Struct(">qqqqq")
_NUMBERS_AT = _FIELDS.size + _CRC.size
HEADER_BYTES = _NUMBERS_AT + _NUMBERS.size


class FrameKind(IntEnum):
    """What a frame says."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5
    DATA = 16
    HEARTBEAT = 17
    REPORT = 18
    SNAPSHOT = 19


_KINDS = {int(kind): kind for kind in FrameKind}
_WITHOUT_BODY = frozenset({FrameKind.HEARTBEAT, FrameKind.REPORT})


class FrameError(Exception):
    """What arrived is no frame; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; the header has the meaning of the numbers."""

    kind: FrameKind
    offset: int = 0
    next_offset: int = 0
    epoch: int = 0
    speaker_epoch: int = 0
    confirmed: int = 0
    body: bytes = b""

    def pieces(self) -> list[bytes]:
        """Returns what goes over the wire: the header, and the body as it is."""
        return [self.header(), self.body] if self.body else [self.header()]

    def header(self) -> bytes:
        """Returns the header alone."""
        fields = _FIELDS.pack(MAGIC, VERSION, self.kind, 0, len(self.body))
        numbers = _NUMBERS.pack(self.offset, self.next_offset, self.epoch, self.speaker_epoch, self.confirmed)
        crc = zlib.crc32(self.body, zlib.crc32(numbers, zlib.crc32(fields)))
        return fields + _CRC.pack(crc) + numbers


class FrameReader:
    """Makes frames of bytes that arrive in any pieces.

    Args:
        max_body_bytes: Of a body of DATA; all others have :data:`MAX_MESSAGE_BYTES`.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._held = bytearray()
        self._allowed = frozenset(FrameKind)

    def allow(self, *kinds: FrameKind) -> None:
        """Says which frames may come next; bytes of others are refused by their header already."""
        self._allowed = frozenset(kinds)

    def feed(self, data: bytes) -> None:
        """Takes what arrived."""
        self._held += data

    def next(self) -> Frame | None:
        """Returns the next frame, None until it has arrived whole.

        Raises:
            FrameError: What arrived is none, or one that may not come now.
        """
        held = self._held
        if not MAGIC.startswith(bytes(held[:4])) and not held.startswith(MAGIC):
            raise FrameError(f"it begins with {bytes(held[:4])!r}, not with {MAGIC!r}")
        if len(held) < HEADER_BYTES:
            return None
        _, version, number, zero, length = _FIELDS.unpack_from(held)
        if version != VERSION or zero != 0:
            raise FrameError(f"version {version}, this broker speaks {VERSION}")
        kind = _KINDS.get(number)
        if kind is None or kind not in self._allowed:
            raise FrameError(f"a frame of kind {number}, expected: {sorted(k.name for k in self._allowed)}")
        self._check_length(kind, length)
        end = HEADER_BYTES + length
        if len(held) < end:
            return None
        with memoryview(held) as view:
            crc = zlib.crc32(view[_NUMBERS_AT:end], zlib.crc32(view[: _FIELDS.size]))
            body = bytes(view[HEADER_BYTES:end])
        if _CRC.unpack_from(held, _FIELDS.size) != (crc,):
            raise FrameError(f"the checksum of a frame of kind {kind.name} is wrong")
        numbers: tuple[int, int, int, int, int] = _NUMBERS.unpack_from(held, _NUMBERS_AT)
        del held[:end]
        return Frame(kind, *numbers, body)

    def _check_length(self, kind: FrameKind, length: int) -> None:
        bound = MAX_MESSAGE_BYTES
        if kind is FrameKind.DATA:
            bound = self._max_body_bytes
        elif kind in _WITHOUT_BODY:
            bound = 0
        if length > bound:
            raise FrameError(f"a body of {length} bytes, at most {bound} are taken")
