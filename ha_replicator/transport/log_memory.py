"""What of the log a slave far behind is sent, in the system's memory.

Owns the threads' part of it: reading from the disk takes its time, and giving memory back waits for all
processors.

Threads: the event loop; the work is done on others.
"""

from __future__ import annotations

import asyncio

from store_native import ReplicatedLog


class ThreadedLogMemory:
    """See :class:`ha_replicator.master.catch_up.LogMemory`.

    Args:
        replicated_log: This broker's.
    """

    def __init__(self, replicated_log: ReplicatedLog) -> None:
        self._log = replicated_log
        self._loop = asyncio.get_running_loop()

    def fetch(self, begin: int, end: int) -> None:
        """Brings [begin, end) into memory."""
        self._loop.run_in_executor(None, self._log.fetch, begin, end)

    def let_go(self, begin: int, end: int) -> None:
        """Nobody reads [begin, end) soon again."""
        self._loop.run_in_executor(None, self._log.let_go, begin, end)
