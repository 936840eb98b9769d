"""A master and a slave whose links talk to each other without sockets.

Owns the bytes between them: a test carries them over, cut, kept back, changed or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from ha_replicator.identity import BrokerIdentity
from ha_replicator.link_limits import LinkLimits
from ha_replicator.link_opening import LinkOpening
from ha_replicator.log import ReplicatedLog
from ha_replicator.master.catch_up import CatchUp, CatchUpRate
from ha_replicator.master.link import MasterLink
from ha_replicator.master.replicas import Replicas
from ha_replicator.slave.link import SlaveLink
from ha_replicator.wire.credentials import Credentials
from store_native import Store

FILE_BYTES = 1 << 20
LIMITS = LinkLimits(max_range_bytes=FILE_BYTES, range_bytes=20_000)
SECRET = b"a secret of the cluster"
SOON_MS = 30_000


def identity(broker_id: int = 0, **other: Any) -> BrokerIdentity:
    """Returns who a broker of the pair is."""
    return BrokerIdentity(**{"cluster": "c", "broker_name": "a", "broker_id": broker_id, **other})


def open_store(path: Path, role: Literal["master", "slave"] = "master", **options: Any) -> Store:
    """Opens a small store."""
    settings: dict[str, Any] = {
        "broker_name": "a",
        "cluster": "c",
        "commitlog_file_size": FILE_BYTES,
        "index_slots": 100,
        "index_entries": 200,
        "consumequeue_file_entries": 1000,
        **options,
    }
    return Store(str(path), role=role, **settings)


def opening(broker_id: int, now: float = 0.0, **other: Any) -> LinkOpening:
    """Returns what a broker of the pair begins a connection with."""
    settings: dict[str, Any] = {
        "me": identity(broker_id),
        "credentials": Credentials(SECRET),
        "shape": "alike",
        "limits": LIMITS,
        "local_peer": True,
        "nonce": str(broker_id + 1) * 32,
        "now": now,
        **other,
    }
    return LinkOpening(**settings)


def master_link(log: ReplicatedLog, now: float = 0.0, **other: Any) -> MasterLink:
    """Returns the master's end of a new connection."""
    catch_up = other.pop("catch_up", None) or unhurried(log)
    return MasterLink(opening(0, now, **other), log, flush="sync", catch_up=catch_up)


def unhurried(log: ReplicatedLog) -> CatchUp:
    """Returns what holds nobody back."""
    return CatchUp(CatchUpRate(float("inf"), Replicas(log, needed=0)), NotedMemory())


class NotedMemory:
    """Notes what is asked of memory.

    Attributes:
        fetched: The ranges that were.
        gone: The ranges that were let go of.
    """

    def __init__(self) -> None:
        self.fetched: list[tuple[int, int]] = []
        self.gone: list[tuple[int, int]] = []

    def fetch(self, begin: int, end: int) -> None:
        """See :class:`ha_replicator.master.catch_up.LogMemory`."""
        self.fetched.append((begin, end))

    def let_go(self, begin: int, end: int) -> None:
        """See :class:`ha_replicator.master.catch_up.LogMemory`."""
        self.gone.append((begin, end))


def slave_link(log: ReplicatedLog, now: float = 0.0, **other: Any) -> SlaveLink:
    """Returns the slave's end of a new connection."""
    return SlaveLink(opening(1, now, **other), log)


class Pair:
    """Two ends of one connection, and the slaves' count of the master.

    Attributes:
        to_master: Bytes that the slave sent and the master has not.
        to_slave: The other way.
    """

    def __init__(
        self, master: MasterLink, slave: SlaveLink, slave_log: ReplicatedLog, replicas: Replicas
    ) -> None:
        self.master = master
        self.slave = slave
        self.replicas = replicas
        self._slave_log = slave_log
        self.to_master = bytearray(b"".join(slave.begin()))
        self.to_slave = bytearray()

    def carry(self, now: float = 0.0, *, at_once: int = 1 << 30) -> bool:
        """Carries at most ``at_once`` bytes each way, and has both speak; whether anything moved."""
        moved = False
        if data := bytes(self.to_master[:at_once]):
            del self.to_master[:at_once]
            following = self.master.following
            self.to_slave += b"".join(self.master.receive(data, now))
            if self.master.following and not following:
                self.replicas.joined(self.master)
            self.replicas.reported()
            moved = True
        pieces = self.master.pump(now)
        self.to_slave += b"".join(pieces)
        if data := bytes(self.to_slave[:at_once]):
            del self.to_slave[:at_once]
            self.to_master += b"".join(self.slave.receive(data, now))
            if self.slave.cut_at is not None:
                self._slave_log.truncate_to(self.slave.cut_at)
                self.to_master += b"".join(self.slave.cut(now))
            moved = True
        said = self.slave.report(now)
        self.to_master += b"".join(said)
        return moved or bool(pieces) or bool(said)

    def settle(self, now: float = 0.0, *, at_once: int = 1 << 30) -> None:
        """Carries until neither has anything to say."""
        while self.carry(now, at_once=at_once):
            pass
