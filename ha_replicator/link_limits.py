"""The bounds of a replication connection.

Owns the numbers: RocketMQ's where it has them. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Times in seconds, sizes in bytes.

    Attributes:
        heartbeat_s: Of both sides, when there is nothing else to say.
        confirmed_s: A master says what is confirmed with the next range; by itself if none went for so long.
        housekeeping_s: Without a frame for so long a connection is closed.
        progress_bytes: So many bytes of a master's frame are a sign of life, too: over a slow link a large
            frame takes longer than `housekeeping_s`.
        handshake_s: It must have ended within it.
        range_bytes: About so much of the log goes in one frame; a larger request goes whole.
        max_range_bytes: A larger frame is refused.
        window_bytes: Of the log sent and not reported yet.
    """

    heartbeat_s: float = 5.0
    confirmed_s: float = 0.02
    housekeeping_s: float = 20.0
    progress_bytes: int = 64 << 10
    handshake_s: float = 10.0
    range_bytes: int = 512 << 10
    max_range_bytes: int = 1 << 30
    window_bytes: int = 64 << 20
