"""A line on stderr that says how something goes: rewritten where a person looks, else printed now and then.

Owns where the line is, and that what is logged meanwhile stands above it; into a pipe, the thread that prints
what was held back.

Invariants: into a pipe goes at most one line in `every_s`, the newest of that time, also where none follows;
on a terminal nothing of the line is left when it is closed.

Threads: any; a lock keeps two from writing at a time. The own one ends when the line is closed.
"""

from __future__ import annotations

import contextlib
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
        self._held: str | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._printer = threading.Thread(target=self._print_held, name="living-line", daemon=True)

    def show(self, text: str) -> None:
        """Replaces the line."""
        with self._changed:
            if self._drawn:
                out = guard.drawing()
                out.write(_BEGIN + guard.shown(text))
                out.flush()
                self._shown = True
            else:
                self._held = text
                self._print_due()
                self._changed.notify()

    def clear(self) -> None:
        """Takes the line away, for what is written in its place."""
        with self._changed:
            self._held = None
            self._erase()

    def _erase(self) -> None:
        if self._shown:
            out = guard.drawing()
            out.write(_BEGIN)
            out.flush()
            self._shown = False

    def _print_due(self) -> float | None:
        """Prints what is held back if its time has come; else returns the seconds until then."""
        if self._held is None:
            return None
        left = self._last + self._every_s - self._clock()
        if left > 0:
            return left
        self._last = self._clock()
        print(self._held, file=sys.stderr, flush=True)
        self._held = None
        return None

    def _print_held(self) -> None:
        with self._changed, contextlib.suppress(OSError):  # nobody reads standard error any more
            while not self._closed:
                self._changed.wait(self._print_due())

    def _before_a_record(self, record: logging.LogRecord) -> bool:
        with self._changed:
            self._erase()
        return True

    def __enter__(self) -> Self:
        for handler in logging.getLogger().handlers:
            handler.addFilter(self._before_a_record)
        if not self._drawn:
            self._printer.start()
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
        with self._changed:
            self._closed = True
            self._changed.notify()
        if not self._drawn:
            self._printer.join()
