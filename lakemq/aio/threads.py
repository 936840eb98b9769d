"""Threads on which an event loop's blocking calls run.

Owns the threads, and how many calls are under way at a time.

Invariants: a call that waits for a thread can be cancelled, and then nothing of it is done; one that runs
goes on to its end, whether somebody still waits for it or not, and keeps its place until then.

Threads: one event loop, and the threads of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from store_native.errors import Closed, InvalidRequest, Unavailable

R = TypeVar("R")

MOST_THREADS = 10_000


class CallThreads:
    """Runs calls for an event loop.

    Args:
        most: How many at a time; further ones wait.
        whose: The client's or the producer's, for the error when it is closed.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, so many there cannot be.
    """

    def __init__(self, most: int, whose: Literal["client", "producer"]) -> None:
        if not (isinstance(most, int) and not isinstance(most, bool) and 0 < most <= MOST_THREADS):
            what = f"calls at a time: is {most!r}, it is a whole number from 1 to {MOST_THREADS:,}"
            raise InvalidRequest("ARGUMENT_ILLEGAL", what)
        self._most = most
        self._whose = whose
        self._closed = False
        self._executor = ThreadPoolExecutor(most, thread_name_prefix="lakemq-aio")
        self._free = asyncio.Semaphore(most)
        self._under_way: set[asyncio.Future[Any]] = set()

    async def run(self, call: Callable[[], R]) -> R:
        """Makes a call on a thread and returns what it returns, or raises what it raises.

        Waits for a thread as long as it takes.

        Raises:
            Closed: The threads were closed; the call was not made.
        """
        await self._free.acquire()
        return await self._run(call)

    async def run_within(self, seconds: float, call: Callable[[], R]) -> R:
        """Makes a call as :meth:`run`, if a thread is free in so many seconds.

        Raises:
            Unavailable: None was; the call was not made.
            Closed: The threads were closed; the call was not made.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError:
            what = f"all {self._most} calls of the {self._whose} at a time were under way for {seconds:g} s"
            raise Unavailable("SERVICE_NOT_AVAILABLE", what) from None
        return await self._run(call)

    async def _run(self, call: Callable[[], R]) -> R:
        if self._closed:
            self._free.release()
            raise Closed(f"{self._whose.upper()}_CLOSED", f"the {self._whose} is closed")
        running = asyncio.get_running_loop().run_in_executor(self._executor, call)
        self._under_way.add(running)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - no call is cancelled
        """Returns when all calls under way have ended; there are none after it.

        Args:
            timeout: Seconds; None waits as long as the calls take. When the time is over they go on to their
                ends, for which nobody waits.
        """
        self._closed = True
        if timeout is not None and self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=timeout)
            if late:
                self._executor.shutdown(wait=False)
                return
        await asyncio.to_thread(self._executor.shutdown)

    def _ended(self, running: asyncio.Future[R]) -> None:
        self._under_way.discard(running)
        self._free.release()
        if not running.cancelled():
            running.exception()  # nobody may be waiting for it any more
