"""The two things that are said: a slave's offset, 8 bytes; a master's frame, 12 bytes and a body.

Owns their form, integers big-endian: a report is the physical offset up to which the slave has the log; a
frame the offset of its body and the body's length, 0 for a heartbeat.

Invariants: a negative number or a body that is too long is no frame; bodies are cut anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

TRANSFER_BYTES = 32 << 10
"""RocketMQ's ``haTransferBatchSize``."""
MAX_BODY_BYTES = 16 << 20
"""Of a body that is taken; RocketMQ's setting is far below."""

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")


class WireError(Exception):
    """What arrived is none of it."""


def report(offset: int) -> bytes:
    """Returns a slave's report."""
    return _REPORT.pack(offset)


def header(offset: int, length: int) -> bytes:
    """Returns what precedes a body."""
    return _HEADER.pack(offset, length)


class ReportReader:
    """Reads reports that arrive in any pieces."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[int]:
        """Yields the offsets that have arrived.

        Raises:
            WireError: One is negative.
        """
        self._held += data
        whole = len(self._held) // _REPORT.size * _REPORT.size
        for (offset,) in _REPORT.iter_unpack(bytes(self._held[:whole])):
            if offset < 0:
                raise WireError(f"it reports {offset}")
            yield offset
        del self._held[:whole]


class BodyReader:
    """Reads frames that arrive in any pieces."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yields (offset, body) of each frame that has arrived; the body of a heartbeat is empty.

        Raises:
            WireError: A number is negative, or a body too long.
        """
        self._held += data
        while len(self._held) >= _HEADER.size:
            offset, length = _HEADER.unpack_from(self._held)
            if offset < 0 or not 0 <= length <= MAX_BODY_BYTES:
                raise WireError(f"a frame of {length} bytes for offset {offset}")
            end = _HEADER.size + length
            if len(self._held) < end:
                return
            body = bytes(self._held[_HEADER.size : end])
            del self._held[:end]
            yield offset, body
