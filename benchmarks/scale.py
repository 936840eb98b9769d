"""How much each run of the bench writes and reads: full for what is published, small for a look.

Owns numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of one run.

    Attributes:
        pairs: measured pairs a measurement.
        singles: requests of one message.
        batched: messages sent in batches.
        appended: messages appended in Rust.
        rows: (body bytes, rows) of the source's topics.
        ledger_rows: rows of the group job.
        slow_messages: messages of a handler that takes 100 ms for each.
        long_log_bytes, short_log_bytes: logs of the crash starts.
        queues: queues of the clean start, a multiple of 1,000.
        history_rows: rows a long ledger holds.
        pulled: messages that pulls read.
        caught_up: bytes that a new slave gets.
        fresh_rows: messages sent at a pace, whose rows are waited for.
        looked_up_rows: rows of the ledger in which some are looked up.
    """

    pairs: int
    singles: int
    batched: int
    appended: int
    rows: tuple[tuple[int, int], ...]
    ledger_rows: int
    slow_messages: int
    long_log_bytes: int
    short_log_bytes: int
    queues: int
    history_rows: int
    pulled: int
    caught_up: int
    fresh_rows: int
    looked_up_rows: int


FULL = Scale(
    *(6, 60_000, 300_000, 1_000_000, ((1024, 600_000), (100, 1_500_000)), 400_000, 10_000),
    *(8 << 30, 1 << 30, 10_000, 10_000_000, 256_000, 5 << 30, 1_500, 100_000_000),
)
QUICK = Scale(
    *(2, 8_000, 40_000, 200_000, ((1024, 60_000), (100, 100_000)), 40_000, 2_000),
    *(512 << 20, 64 << 20, 1_000, 200_000, 64_000, 256 << 20, 250, 1_000_000),
)
