"""A log in memory that keeps the rules of a store's: what the simulation of replication replicates.

Owns requests, marks, epochs and what a crash leaves of them. It shares no code with the store: the same
rules, said once more.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from ha_replicator.log import Epochs
from store_native.errors import DataCorrupt, InvalidRequest, Unavailable


@dataclass(frozen=True)
class Request:
    """One request of the log."""

    offset: int
    epoch: int
    data: bytes

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + len(self.data)


@dataclass
class ModelLog:
    """See `ha_replicator.log.ReplicatedLog`.

    Attributes:
        kept: What cuts took away.
    """

    is_master: bool
    asks: bool = False
    requests: list[Request] = field(default_factory=list)
    flushed: int = 0
    confirmed: int = 0
    seen: int = 1
    starts: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    replicas_have: int = 0
    agreed: int = 0
    kept: list[Request] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Where the next request begins."""
        return self.requests[-1].end if self.requests else 0

    def send(self, data: bytes) -> int:
        """A client's request to a master; returns its end."""
        assert self.is_master
        self.requests.append(Request(self.end, self.starts[-1][0], data))
        return self.end

    def flush(self) -> None:
        """All of it is on the disk."""
        self.flushed = self.end
        self._confirm()

    def crash(self, chance: Random, *, power: bool) -> None:
        """Leaves what a crash leaves: without power any end of what was not flushed may be gone."""
        if power:
            kept = [request for request in self.requests if request.end <= self.flushed]
            rest = self.requests[len(kept) :]
            self.requests = kept + rest[: chance.randint(0, len(rest))]
        self.flushed = self.end
        # The mark may be on the disk as it was some time ago.
        ends = [0, *(request.end for request in self.requests if request.end <= self.confirmed)]
        self.confirmed = chance.choice(ends) if power else self.confirmed
        while len(self.starts) > 1 and self.starts[-1][1] > self.end:
            self.starts.pop()

    def start(self, *, master: bool, asks: bool) -> None:
        """Opens what a crash or a stop left."""
        self.is_master, self.asks = master, asks
        self.replicas_have = self.agreed = self.confirmed
        self._confirm()

    def _confirm(self) -> None:
        limit = self.flushed
        if not self.is_master or self.asks:
            limit = min(limit, self.replicas_have)
        self.confirmed = max(self.confirmed, limit)

    def marks(self) -> tuple[int, int, int, int]:
        """(first byte, appended, flushed, confirmed)."""
        return 0, self.end, self.flushed, self.confirmed

    def role(self) -> tuple[Literal["master", "slave"], int]:
        """What it is, and the highest epoch it heard of."""
        return ("master" if self.is_master else "slave"), self.seen

    def epochs(self) -> list[tuple[int, int]]:
        """Its epochs."""
        return list(self.starts)

    def common_end(self, epochs: Epochs, end: int, /) -> int | None:
        """From the newest epoch backwards."""
        theirs = list(epochs)
        for at in range(len(self.starts) - 1, -1, -1):
            if self.starts[at] in theirs:
                other = theirs.index(self.starts[at])
                own_end = self.starts[at + 1][1] if at + 1 < len(self.starts) else self.end
                their_end = theirs[other + 1][1] if other + 1 < len(theirs) else end
                return min(own_end, self.end, their_end, end)
        return None

    def bytes_of(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end)."""
        whole = b"".join(request.data for request in self.requests)
        return whole[begin:end]

    def digest(self, begin: int, end: int, /) -> int:
        """CRC-32."""
        if not 0 <= begin <= end <= self.flushed:
            raise InvalidRequest("OFFSET_ILLEGAL", f"[{begin}, {end})")
        return zlib.crc32(self.bytes_of(begin, end))

    def read(self, begin: int, max_bytes: int, /) -> tuple[int, int, bytes]:
        """Whole requests of one epoch."""
        flushed = [request for request in self.requests if request.end <= self.flushed]
        found = [request for request in flushed if begin <= request.offset]
        if begin == self.flushed:
            return self.starts[-1][0], begin, b""
        if not found or found[0].offset != begin:
            raise DataCorrupt("DATA_CORRUPT", f"no request begins at {begin}")
        data = b""
        for request in found:
            if request.epoch != found[0].epoch or (data and len(data) + len(request.data) > max_bytes):
                break
            data += request.data
        return found[0].epoch, begin + len(data), data

    def bootstrap_snapshot(self) -> tuple[int, bytes]:
        """The model's logs begin at 0: nobody asks for it."""
        raise AssertionError("a log that begins at 0 has no need of it")

    def append(self, master_epoch: int, offset: int, epoch: int, next_offset: int, data: bytes, /) -> int:
        """A range of the master's; its requests end with a line's end each."""
        if self.is_master or master_epoch < self.seen:
            raise Unavailable("SERVICE_NOT_AVAILABLE", "not from this one")
        if offset != self.end:
            raise InvalidRequest("OFFSET_ILLEGAL", f"the log goes on at {self.end}, not at {offset}")
        lines = data.splitlines(keepends=True)
        if epoch > master_epoch or next_offset != offset + len(data) or not data.endswith(b"\n"):
            raise DataCorrupt("DATA_CORRUPT", "no whole requests")
        if epoch < self.starts[-1][0]:
            raise DataCorrupt("DATA_CORRUPT", "an older epoch")
        self.seen = master_epoch
        if epoch > self.starts[-1][0]:
            self.starts = [entry for entry in self.starts if entry[1] < offset or entry == self.starts[0]]
            self.starts.append((epoch, offset))
        for line in lines:
            self.requests.append(Request(self.end, epoch, line))
        self.agreed = self.end
        return self.end

    def begin_epoch(self, epoch: int, offset: int, /) -> None:
        """Before a byte of it."""
        if self.is_master or epoch < self.seen:
            raise Unavailable("SERVICE_NOT_AVAILABLE", "not from this one")
        if offset != self.end:
            raise InvalidRequest("OFFSET_ILLEGAL", f"the log ends at {self.end}")
        if epoch > self.starts[-1][0]:
            self.starts = [entry for entry in self.starts if entry[1] < offset or entry == self.starts[0]]
            self.starts.append((epoch, offset))

    def truncate_to(self, offset: int, /) -> None:
        """Nothing confirmed goes."""
        if self.is_master:
            raise Unavailable("SERVICE_NOT_AVAILABLE", "a master is not cut")
        ends = {0, *(request.end for request in self.requests)}
        if offset < self.confirmed or offset not in ends:
            raise InvalidRequest("ARGUMENT_ILLEGAL", f"cannot be cut at {offset}, confirmed {self.confirmed}")
        self.kept += [request for request in self.requests if request.offset >= offset]
        self.requests = [request for request in self.requests if request.end <= offset]
        self.flushed = min(self.flushed, offset)
        self.agreed = offset
        while len(self.starts) > 1 and self.starts[-1][1] >= offset:
            self.starts.pop()

    def become_master(self, epoch: int, asks_replicas: bool, /) -> int:
        """All of it counts by that, unless replicas are asked."""
        if epoch <= self.seen:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"epoch {self.seen} was heard of")
        self.starts = [entry for entry in self.starts if entry[1] < self.end or entry == self.starts[0]]
        self.starts.append((epoch, self.end))
        self.seen, self.is_master, self.asks = epoch, True, asks_replicas
        self.replicas_have = self.confirmed
        self._confirm()
        return self.end

    def become_slave(self, epoch: int, /) -> None:
        """Confirms nothing by itself from here on."""
        if epoch < self.seen:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"epoch {self.seen} was heard of")
        self.seen, self.is_master = epoch, False
        self.replicas_have = self.agreed = self.confirmed

    def ask_replicas(self, replicated: int | None, /) -> None:
        """None asks nobody."""
        self.asks = replicated is not None
        self.replicas_have = replicated or 0
        self._confirm()

    def replicated(self, offset: int, /) -> None:
        """On a slave it counts as far as the log is known to be the master's."""
        self.replicas_have = max(self.replicas_have, offset if self.is_master else min(offset, self.agreed))
        self._confirm()
