"""What the sockets' drivers ask of a connection's state machine, whatever protocol it speaks.

Owns the two ports.

Invariants: times are seconds that never go back; any method raises LinkClosed when the connection is of no
more use.
"""

from __future__ import annotations

from typing import Protocol

from ha_replicator.throughput import Throughput


class LinkToSlave(Protocol):
    """A slave's connection, on its master.

    Attributes:
        broker_id: The slave's; None where the protocol does not say.
        following: It receives the log.
        sent: The log up to there was sent.
        acked: The slave reported it up to there.
        acked_at: When it last did.
        throughput: How fast that goes.
        counts: Whether its reports confirm messages.
        superseded: Another slave of its id came later: the next :meth:`pump` ends it.
        bootstraps: It has no store yet, and is not one to rely on.
    """

    following: bool
    sent: int
    acked: int
    acked_at: float
    throughput: Throughput
    superseded: bool
    bootstraps: bool

    @property
    def broker_id(self) -> int | None:
        """See the attributes."""

    @property
    def counts(self) -> bool:
        """See the attributes."""

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """Takes what arrived; returns what is to be sent."""

    def pump(self, now: float) -> list[bytes]:
        """Returns what is to be sent next."""

    def check(self, now: float) -> None:
        """Ends the connection of a slave that is silent."""

    def is_due(self, now: float) -> bool:
        """Whether :meth:`pump` has something to do; asked after the log moved or the slave said something."""

    def next_deadline(self) -> float:
        """When :meth:`pump` must be called at the latest, whatever :meth:`is_due` says."""

    def lag(self) -> int:
        """Bytes of the log that the slave did not report yet."""


class LinkToMaster(Protocol):
    """The connection to the master, on its slave.

    Attributes:
        epoch: The master's.
        following: The log goes on.
        cut_at: The driver cuts the log there, then calls :meth:`cut`.
        master_end: The master's log goes so far at least; None until it said so.
    """

    epoch: int
    following: bool
    cut_at: int | None
    master_end: int | None

    def begin(self) -> list[bytes]:
        """Returns what is to be sent first."""

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """Takes what arrived; returns what is to be sent."""

    def cut(self, now: float) -> list[bytes]:
        """The log was cut; returns what is to be sent."""

    def report(self, now: float) -> list[bytes]:
        """Returns a report when there is something to say."""

    def is_due(self) -> bool:
        """Whether :meth:`report` has something to say; asked after the log moved."""

    def next_deadline(self) -> float:
        """When :meth:`report` must be called at the latest, whatever :meth:`is_due` says."""
