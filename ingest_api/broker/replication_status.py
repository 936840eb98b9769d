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
        lag_s: Since the first message of that was stored; 0 where there is none, None where it is not known.
        bytes_per_s: What it reported in the last 10 s, or since it follows.
        silent_s: Since its last report.
    """

    broker_id: int | None
    acked: int
    lag_bytes: int
    lag_s: float | None
    bytes_per_s: float
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
        log_parted: A slave's: why its log is not its master's, and is not read in its place; None: it may be.
        read_only: Why its store takes no more messages until it is opened again; None: it does.
        master_end: A slave's: its master's log went so far at least when it was heard last; None: it was not.
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
    log_parted: str | None
    read_only: str | None
    master_end: int | None
    slaves: list[SlaveStatus]

    @property
    def lag_bytes(self) -> int | None:
        """What a slave lacks of its master's log, as far as it heard of that; None on a master."""
        return None if self.master_end is None else max(0, self.master_end - self.appended)
