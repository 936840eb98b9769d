"""What a broker says of its part in replication.

Owns the values: its role, how far its log is, who follows it. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """A slave that follows this master.

    Attributes:
        broker_id: None for a RocketMQ slave, which does not say.
        acked: It reported the log up to there.
        lag_bytes: What it did not report yet.
        silent_s: Since its last report.
    """

    broker_id: int | None
    acked: int
    lag_bytes: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """What the broker is and how far its log is.

    Attributes:
        master: Where a slave is configured to find its master.
        ha_port: Where slaves connect; None: nowhere.
        in_reach: Whether enough slaves can have a message soon; True where none is asked.
        following: A slave's: whether it follows its master now.
        failure: A slave's: why it does not.
    """

    cluster: str
    broker_name: str
    broker_id: int
    role: str
    epoch: int
    epochs: list[tuple[int, int]]
    first_offset: int
    appended: int
    flushed: int
    confirmed: int
    ha_port: int | None
    master: str | None
    min_in_sync: int
    in_reach: bool
    following: bool
    failure: str | None
    slaves: list[SlaveStatus]
