"""Writes a small store whose last three records are in the log but not flushed, then dies by SIGKILL.

    python -m tests.support.unflushed_writer DIR

What a crash may tear is only what was not flushed; this makes such a tail on purpose.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.stores import open_store

TOPIC: Final = "damage"
FLUSHED: Final = 40
UNFLUSHED: Final = 3
NEVER_MS: Final = 3_600_000
LONGEST_FLUSH_MS: Final = 60_000
SIZES: Final[dict[str, Any]] = {
    "commitlog_file_size": 1 << 20,
    "consumequeue_file_entries": 200,
    "index_slots": 100,
    "index_entries": 400,
    "default_queue_nums": 1,
}


def body(number: int) -> bytes:
    """Returns the body of a message by its number, which is also its queue offset."""
    return b"message %d " % number + b"z" * 60


def main(path: Path) -> None:
    """Writes FLUSHED records, makes them durable, writes UNFLUSHED more, and kills itself."""
    store = open_store(
        path, flush="async", flush_interval_ms=LONGEST_FLUSH_MS, checkpoint_interval_ms=NEVER_MS, **SIZES
    )
    for number in range(FLUSHED):
        store.append_message(TOPIC, body(number), keys=[f"k{number}"], tags="t")
    store.checkpoint()
    end = 0
    for number in range(FLUSHED, FLUSHED + UNFLUSHED):
        end = store.append_message(TOPIC, body(number), keys=[f"k{number}"], tags="t").end_offset
    assert store.watermarks()[1] < end, "the tail was flushed"
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
