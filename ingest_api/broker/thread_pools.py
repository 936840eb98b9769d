"""Runs what takes longer than the event loop may be held: large appends, cold reads, administration.

Owns two small thread pools, so that a bulk load cannot keep reads and administration waiting.

Invariants: a large append that waited too long for a thread is refused instead of stored after its sender
gave up.

Threads: the event loop hands work over and gets the results; the pools' own run it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class BulkPool:
    """Runs large appends.

    Args:
        threads: How many at once.
        check_wait: Called on the worker with the seconds spent waiting; raises to refuse.
        clock: Seconds, never going back.
    """

    def __init__(
        self, threads: int, check_wait: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="bulk")
        self._check_wait = check_wait
        self._clock = clock
        self.queued = 0

    async def run(self, work: Callable[..., Result], *args: Any) -> Result:
        """Runs ``work`` on a worker thread.

        A caller that is cancelled meanwhile loses the result; an append may still be stored, which is
        what a client that disconnects has to expect.
        """
        entered = self._clock()

        def on_worker() -> Result:
            self._check_wait(self._clock() - entered)
            return work(*args)

        self.queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, on_worker)
        finally:
            self.queued -= 1

    def close(self) -> None:
        """Waits for what runs."""
        self._executor.shutdown(wait=True)


class ReadPool:
    """Runs reads that may touch the disk, and administration."""

    def __init__(self, threads: int = 4) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="read")

    async def run(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Runs ``work`` on a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: work(*args, **named))

    def close(self) -> None:
        """Waits for what runs."""
        self._executor.shutdown(wait=True)
