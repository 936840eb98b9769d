"""The log as RocketMQ's replication protocol sees it: bytes without borders of requests.

Owns the port that the protocol's links need besides `ha_replicator.log.ReplicatedLog`.
"""

from __future__ import annotations

from typing import Protocol

from ha_replicator.log import ReplicatedLog


class RawLog(ReplicatedLog, Protocol):
    """A log whose files can be read as they are."""

    def read_raw(self, begin: int, max_bytes: int, /) -> bytes:
        """The flushed bytes from ``begin`` on, as they are stored in one file, cut anywhere."""

    def file_size(self) -> int:
        """Bytes of a file of the log."""
