"""The event loop of a handler whose calls are coroutines.

Owns the loop and its thread. It runs between batches too, so that a call may go on behind its task, and what
the handler keeps open is kept alive.

Invariants: whatever a handler does to its loop, it runs on until it is closed. All of a handler runs on one
thread: its `open`, its calls and its `close`.

Threads: one daemon, so that a call that holds the loop ends with its process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

CANCEL_S = 5.0
"""What a coroutine that is cancelled, and the loop when it is closed, get to end."""


class HandlerLoop:
    """A loop that runs from when it is made until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closes = False
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self._thread.start()

    def begin(self, call: Coroutine[Any, Any, None]) -> Future[None]:
        """Has a coroutine run there; from any other thread."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def close(self) -> None:
        """Ends the loop; one that is held by a call ends with the process."""
        if self._closes:
            return
        self._closes = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CANCEL_S)

    def _run(self) -> None:
        while not self._closes:
            with suppress(SystemExit, KeyboardInterrupt):  # of a task that nobody awaits
                self._loop.run_forever()
        self._loop.close()
