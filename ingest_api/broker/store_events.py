"""Hears from the store that something moved: flushed, dispatched, poisoned.

Owns the reader on the store's eventfd.

Invariants: no wake-up is lost, because the eventfd counts while nobody listens and is read before the
watermarks are. It listens only while somebody waits, so an idle broker, or one that flushes asynchronously,
is not woken for nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from store_native import Store


class StoreEvents:
    """Fans one eventfd out to those who wait.

    Args:
        store: The store.
        loop: The loop the broker runs on.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fd = store.progress_fd()
        self._listeners: list[Callable[[], bool]] = []
        self.listening = False

    def subscribe(self, moved: Callable[[], bool]) -> None:
        """Adds a listener; ``moved`` is called after each move and says whether it still waits."""
        self._listeners.append(moved)

    def listen(self) -> None:
        """Starts listening; call it when :attr:`listening` is false and you begin to wait."""
        if not self.listening:
            self.listening = True
            self._loop.add_reader(self._fd, self._on_progress)

    def close(self) -> None:
        """Stops listening for good; call it before the store closes its eventfd."""
        self._listeners.clear()
        if self.listening:
            self.listening = False
            self._loop.remove_reader(self._fd)

    def _on_progress(self) -> None:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return
        waiting = False
        for moved in self._listeners:
            waiting = moved() or waiting
        if not waiting and self.listening:
            self.listening = False
            self._loop.remove_reader(self._fd)
