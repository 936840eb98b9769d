"""SIGINT while no command runs: Ctrl-C ends the process at once, without a stack.

Owns the handler before a command runs, when modules are imported, and after it, when Python ends.

Invariants: there is nothing to clean up then; while a command runs, SIGINT is the command's. Who starts the
process with SIGINT ignored (``nohup``, a job in the background) keeps it ignored. Imports nothing that takes
time.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


class EndedQuietly:
    """Ends the process with 130 at a SIGINT inside, but for the time that was handed over."""

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self._take()

    def __exit__(self, *_: object) -> None:
        self._take()

    def _take(self) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, _end)


def hand_over() -> None:
    """Gives SIGINT to the command that runs now: it is raised as KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)
