"""What a broker begins a replication connection with, whichever side it is on.

Owns who the broker is in it, and what both sides must have alike. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass

from ha_replicator.identity import BrokerIdentity
from ha_replicator.link_limits import LinkLimits
from ha_replicator.wire.credentials import Credentials


@dataclass(frozen=True, slots=True)
class LinkOpening:
    """One connection's.

    Attributes:
        me: This broker.
        credentials: The cluster's secret.
        shape: What the other one's store must have alike, in words.
        limits: The bounds.
        local_peer: Whether the other one is on this machine.
        nonce: A random number of this connection, in hex.
        now: When it begins, in seconds that never go back; so in all methods of a link.
    """

    me: BrokerIdentity
    credentials: Credentials
    shape: str
    limits: LinkLimits
    local_peer: bool
    nonce: str
    now: float
