"""Who holds a group's lease: a checkpoint, and the process that runs it.

Owns the owner's text at the broker.

Invariants: two processes are never the same owner, whatever they have copied of each other; and a process
counts as dead only where that can be seen, on its own machine and in its own namespace of process ids.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from delta_tables.ledger.writer_lock import started

_TEXT = re.compile(r"consume/(?P<checkpoint>[^/]+)/(?P<machine>[^/]+)/(?P<pid>\d+)-(?P<started>\d+)")

_UNKNOWN = "unknown"


@dataclass(frozen=True)
class LeaseOwner:
    """One run of one checkpoint.

    Attributes:
        checkpoint: the checkpoint's own id, which a copy of the checkpoint shares.
        machine: host, boot and namespace of process ids.
        pid: the process.
        started: its start in clock ticks since boot, which tells it from a later one of its number.
    """

    checkpoint: str
    machine: str
    pid: int
    started: int

    @classmethod
    def here(cls, checkpoint: str) -> LeaseOwner:
        """This process."""
        return cls(checkpoint, _machine(), os.getpid(), started(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> LeaseOwner | None:
        """Reads an owner's text; None for an owner of another kind."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        return cls(found["checkpoint"], found["machine"], int(found["pid"]), int(found["started"]))

    def __str__(self) -> str:
        return f"consume/{self.checkpoint}/{self.machine}/{self.pid}-{self.started}"

    def is_dead(self) -> bool:
        """Whether the process has surely ended; False when that cannot be seen from here."""
        here = _machine()
        return self.machine == here and not here.endswith(_UNKNOWN) and started(self.pid) != self.started


def _machine() -> str:
    """This host, boot and namespace; the same text elsewhere cannot be."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64]
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        namespace = re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        return f"{host}.{_UNKNOWN}"
    return f"{host}.{boot}.{namespace}"
