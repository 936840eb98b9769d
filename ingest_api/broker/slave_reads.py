"""Which broker of a name a reader goes on at: its master, or a slave.

Owns RocketMQ's rule (``slaveReadEnable``): who is so far behind that what it reads is not in memory reads
from a slave, so that the master's memory stays with what was just written.

Invariants: a slave is named only where it has what the reader is at; where there is none, or readers are not
to be sent anywhere, it is the master. It is a suggestion: either answers.

Threads: the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from store_native import Slice

MASTER_ID = 0
_MEMORY_RATIO = 0.4
"""RocketMQ's ``accessMessageInMemoryMaxRatio``."""


class SlaveReads:
    """Says where readers go on.

    Args:
        enabled: Readers are sent to slaves.
        behind_bytes: Who is further behind the end of the log; 0: 40% of the machine's memory.
        log_end: Where the log ends.
        slave: The id of a slave to read from, 0 where there is none; a slave names itself.
    """

    def __init__(
        self, *, enabled: bool, behind_bytes: int, log_end: Callable[[], int], slave: Callable[[], int]
    ) -> None:
        self._enabled = enabled
        self._behind_bytes = behind_bytes or int(_memory() * _MEMORY_RATIO)
        self._log_end = log_end
        self._slave = slave

    def suggested(self, piece: Slice) -> int:
        """Returns the id of the broker to read on at, behind a slice."""
        at = piece.physical_offset
        if not self._enabled or at is None or self._log_end() - at <= self._behind_bytes:
            return MASTER_ID
        return self._slave()


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
