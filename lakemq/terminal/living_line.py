"""A line on stderr that says how something goes: rewritten where a person looks, else printed now and then.

Owns where the line is, and that what is logged meanwhile stands above it.

Invariants: into a pipe goes at most one line in `every_s`; on a terminal nothing of the line is left when it
is closed.

Threads: any; a lock keeps two from writing at a time.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from lakemq.terminal import guard

EVERY_S = 60.0
_BEGIN = "\r\x1b[K"
"""Back to the first column, and away with what is there."""


class LivingLine:
    """One line.

    Args:
        every_s: How far apart lines into a pipe are.
        clock: Seconds that never go back.
    """

    def __init__(self, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._drawn = sys.stderr.isatty()
        self._every_s = every_s
        self._clock = clock
        self._last = clock()
        self._shown = False
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Replaces the line."""
        with self._lock:
            if self._drawn:
                out = guard.drawing()
                out.write(_BEGIN + guard.shown(text))
                out.flush()
                self._shown = True
            elif self._clock() - self._last >= self._every_s:
                self._last = self._clock()
                print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Takes the line away, for what is written in its place."""
        with self._lock:
            if self._shown:
                out = guard.drawing()
                out.write(_BEGIN)
                out.flush()
                self._shown = False

    def _before_a_record(self, record: logging.LogRecord) -> bool:
        self.clear()
        return True

    def __enter__(self) -> Self:
        for handler in logging.getLogger().handlers:
            handler.addFilter(self._before_a_record)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for handler in logging.getLogger().handlers:
            handler.removeFilter(self._before_a_record)
        self.clear()
