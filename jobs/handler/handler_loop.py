"""The event loop of a handler whose calls are coroutines.

Owns the loop and its thread. It runs between batches too, so that a call may go on behind its task, and what
the handler keeps open is kept alive.

Invariants: whatever a handler does to its loop, it runs on until it is closed; one that cannot run ends its
process, and so does one that is held by what is no call, when somebody waits for it. What still runs when it
is closed is cancelled. Who waits holds no lock that the loop needs: a signal may come in the middle.

Threads: one daemon, so that a call that holds the loop ends with its process.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from jobs.handler.watchdog import EXIT_STATUS, end_process

CANCEL_S = 5.0
"""What a coroutine that is cancelled, and the loop when it is closed, get to end."""


class HandlerLoop:
    """A loop that runs from when it is made until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = self._ends = False
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self._thread.start()

    def call(self, step: Callable[..., object], *arguments: object) -> None:
        """Has a function called there; from any other thread."""
        self._loop.call_soon_threadsafe(step, *arguments)

    def run(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Has a coroutine run there, and waits for it."""
        said, kept = SimpleQueue[asyncio.Task[Any]](), list[asyncio.Task[Any]]()

        def begin() -> None:
            kept.append(self._loop.create_task(make()))  # the loop itself does not keep its tasks
            kept[0].add_done_callback(said.put)

        self.call(begin)
        return said.get().result()

    def answers(self, within_s: float) -> bool:
        """Whether the loop comes to its next step in time, and is not held."""
        answered = SimpleQueue[None]()
        self.call(answered.put, None)
        try:
            answered.get(timeout=within_s)
        except Empty:
            return False
        return True

    def close(self) -> None:
        """Ends the loop; one that is held by a call ends with the process."""
        if self._is_closed:
            return
        self._is_closed = True
        self.call(self._end)
        self._thread.join(CANCEL_S)

    def _end(self) -> None:
        self._ends = True  # here, so that a handler that stops the loop at this moment ends nothing
        self._loop.stop()

    def _run(self) -> None:
        try:
            while not self._ends:
                with suppress(SystemExit, KeyboardInterrupt):  # of a task that nobody awaits
                    self._loop.run_forever()
        except BaseException:  # noqa: BLE001 - a handler has broken it: who waits would wait for ever
            traceback.print_exc()
            os._exit(EXIT_STATUS)
        with suppress(BaseException):  # of what runs there: nobody is left to hear of it
            self._cancel_all()
        self._loop.close()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class HeldLoop:
    """Ends the process where a loop is held for too long, whether or not by a call.

    Args:
        loop: The loop.
        timeout_s: How long a call may take; so long, and `CANCEL_S`, it may be held.
        clock: Seconds that never go back.
    """

    def __init__(
        self, loop: HandlerLoop, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._clock = clock
        self._answers = SimpleQueue[None]()
        self._asked_at: float | None = None

    def look(self) -> None:
        """Asks the loop, or looks at how long it has not answered; called again and again."""
        with suppress(Empty):
            self._answers.get_nowait()
            self._asked_at = None
        if self._asked_at is None:
            self._asked_at = self._clock()
            self._loop.call(self._answers.put, None)
        elif self._clock() - self._asked_at > self._timeout_s + CANCEL_S:
            end_process(self._timeout_s, follows="something holds its event loop, its worker ends")
