"""The log as replication sees it.

Owns the ports between the replication's state machines and a store: `store_native.ReplicatedLog` is one, the
simulation of the tests has another.

Invariants: first <= confirmed <= flushed <= appended; a range is whole requests of one epoch and one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Epochs = Sequence[tuple[int, int]]
"""(epoch, physical offset of its first byte), oldest first."""

DIGEST_BYTES = 64 << 10
"""So much of the log before the common point is compared by its digest."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """A stretch of the log.

    Attributes:
        offset: Of its first byte.
        epoch: That wrote it.
        next_offset: Where the log goes on: behind the last byte, or at the next file.
        data: Whole requests, the last perhaps followed by the end marker of a file.
    """

    offset: int
    epoch: int
    next_offset: int
    data: bytes


class LogPosition(Protocol):
    """Where a log stands: all that the beginning of a connection asks of it."""

    def marks(self) -> tuple[int, int, int, int]:
        """(first byte, appended, flushed, confirmed)."""

    def role(self) -> tuple[Literal["master", "slave"], int]:
        """What it is now, and the highest epoch it heard of."""

    def epochs(self) -> list[tuple[int, int]]:
        """Its epochs, oldest first."""


class ReplicatedLog(LogPosition, Protocol):
    """What a replicator asks of a store; the errors are those of `store_native._store.ReplicatedLog`."""

    def common_end(self, epochs: Epochs, end: int, /) -> int | None:
        """Up to where it is the same as a log with these epochs that ends at ``end``."""

    def digest(self, begin: int, end: int, /) -> int:
        """CRC-32 of the flushed bytes [begin, end)."""

    def read(self, begin: int, max_bytes: int, /) -> tuple[int, int, bytes]:
        """(epoch, next offset, bytes) from ``begin`` on, as far as it is flushed."""

    def bootstrap_snapshot(self) -> tuple[int, bytes]:
        """(offset, state as of it), for a slave that has no store."""

    def append(self, master_epoch: int, offset: int, epoch: int, next_offset: int, data: bytes, /) -> int:
        """Appends a range of the master's log; returns the log's end."""

    def begin_epoch(self, epoch: int, offset: int, /) -> None:
        """Notes on a slave that an epoch goes on at the log's end, before it has a byte of it."""

    def truncate_to(self, offset: int, /) -> None:
        """Cuts a slave's log where it parts from its master's."""

    def become_master(self, epoch: int, asks_replicas: bool, /) -> int:
        """Takes messages from here on; returns where the epoch begins."""

    def become_slave(self, epoch: int, /) -> None:
        """Takes no message from here on, and no bytes of a master before ``epoch``."""

    def ask_replicas(self, replicated: int | None, /) -> None:
        """Confirms nothing behind ``replicated`` before :meth:`replicated` says so; None: what is flushed."""

    def replicated(self, offset: int, /) -> None:
        """The replicas (on a slave: the master) hold the log up to ``offset`` for good."""


def digest_range(first: int, common: int) -> tuple[int, int]:
    """Which bytes before the common point both sides compare; ``first`` is where the later log begins."""
    return max(first, common - DIGEST_BYTES), common
