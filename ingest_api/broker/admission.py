"""Decides whether a send may come in: flow control's places 2, 3 and 4 (place 1 is the store's).

Owns how many sends are in flight, how many bytes of large bodies are held, and how full the disk is.

Invariants: what is turned away gets the reason, when to come back, and that nothing was stored.
Threads: the event loop.
"""

from __future__ import annotations

from ingest_api.broker.mastership import not_master
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.settings import LimitSettings
from store_native.errors import Unavailable

# The ratio must fall this far below the limit before sends are taken again, so that a broker at the
# border does not flap between taking and refusing.
_RELIEF = 0.99


class Admission:
    """Counts what is inside and turns away what does not fit.

    Args:
        limits: The bounds.
        metrics: Each refusal is counted there by its reason.

    Attributes:
        slave_of: Of a slave, which takes no messages: where its master is, empty when it does not know.
    """

    __slots__ = (
        "_disk_full",
        "_limits",
        "_metrics",
        "closing",
        "disk_used_ratio",
        "dispatch_failure",
        "inflight",
        "parsing_bytes",
        "slave_of",
    )

    def __init__(self, limits: LimitSettings, metrics: BrokerMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._disk_full = False
        self.inflight = 0
        self.parsing_bytes = 0
        self.disk_used_ratio = 0.0
        self.closing = False
        self.dispatch_failure: str | None = None
        self.slave_of: str | None = None

    @property
    def disk_full(self) -> bool:
        """Whether sends are refused for want of space."""
        return self._disk_full

    @property
    def open(self) -> bool:
        """Whether :meth:`enter` would let a send in."""
        turned_away = self._disk_full or self.closing or self.dispatch_failure is not None
        turned_away = turned_away or self.slave_of is not None
        return not (turned_away or self.inflight >= self._limits.max_inflight_sends)

    def check(self) -> None:
        """Refuses what :meth:`enter` would refuse now, before the body is read.

        Raises:
            Unavailable: SYSTEM_BUSY, DISK_FULL, NOT_MASTER or SERVICE_NOT_AVAILABLE; nothing was stored.
        """
        if self.slave_of is not None:
            self._metrics.turned_away("not_master")
            raise not_master("takes no messages", self.slave_of)
        if self.inflight >= self._limits.max_inflight_sends:
            raise self._refusal(
                "send_queue_full",
                "SYSTEM_BUSY",
                f"{self.inflight} sends are waiting for their answer already",
            )
        if self._disk_full:
            raise self._refusal(
                "disk_full",
                "DISK_FULL",
                f"the disk is {self.disk_used_ratio:.1%} full; the broker only reads",
            )
        if self.closing:
            raise self._refusal("closing", "SERVICE_NOT_AVAILABLE", "the broker is stopping")
        if self.dispatch_failure is not None:
            raise self._refusal(
                "dispatch_failure",
                "SERVICE_NOT_AVAILABLE",
                f"what is stored cannot be read at the moment ({self.dispatch_failure})",
            )

    def enter(self) -> None:
        """Lets one send in whose body has arrived; the caller owes a :meth:`leave`.

        Raises:
            Unavailable: As :meth:`check`; nothing was stored.
        """
        self.check()
        self.inflight += 1

    def leave(self) -> None:
        """Ends one send."""
        self.inflight -= 1

    def reserve(self, size: int) -> int:
        """Counts bytes of a large body that have arrived; the caller owes a :meth:`release`.

        Raises:
            Unavailable: TOO_MANY_REQUESTS; nothing was stored.
        """
        self.check_capacity(size)
        self.parsing_bytes += size
        return size

    def check_capacity(self, size: int) -> None:
        """Refuses what :meth:`reserve` would refuse now, before any of it is read.

        Raises:
            Unavailable: TOO_MANY_REQUESTS; nothing was stored.
        """
        # The first body always fits, or a limit below a request's would refuse it for ever.
        if self.parsing_bytes and self.parsing_bytes + size > self._limits.max_parsing_bytes:
            raise self._refusal(
                "parsing_bytes",
                "TOO_MANY_REQUESTS",
                f"{self.parsing_bytes} bytes of large bodies are being read and parsed already",
            )

    def release(self, size: int) -> None:
        """Takes bytes off the count."""
        self.parsing_bytes -= size

    def check_queue_wait(self, waited_s: float) -> None:
        """Refuses a large body that waited too long for a thread; its sender has given up by now.

        Called on the worker thread. Raises Unavailable SYSTEM_BUSY; nothing was stored.
        """
        if waited_s > self._limits.send_queue_wait_s:
            raise self._refusal(
                "send_queue_wait", "SYSTEM_BUSY", f"the send waited {waited_s:.1f} s to be parsed"
            )

    def set_disk_used(self, ratio: float) -> None:
        """Takes the newest measure of the disk."""
        self.disk_used_ratio = ratio
        limit = self._limits.disk_full_ratio
        self._disk_full = ratio > (limit * _RELIEF if self._disk_full else limit)

    def _refusal(self, reason: str, code: str, detail: str) -> Unavailable:
        self._metrics.turned_away(reason)
        return Unavailable(code, f"{detail}; nothing was stored", reason=reason)
