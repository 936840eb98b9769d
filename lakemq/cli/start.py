"""Where every ``lakemq`` command begins: Ctrl-C ends it without a stack, however early or late it comes.

Owns SIGINT while no command runs: before, when modules are imported, and after, when Python ends.

Invariants: there is nothing to clean up then, so the process ends at once with 130; while a command runs,
SIGINT is the command's. Who starts it with SIGINT ignored (``nohup``, a job in the background) keeps it
ignored. Imports nothing that takes time.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def main() -> int:
    """Runs one command and returns its exit code; see app.py."""
    quietly = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if quietly:
        signal.signal(signal.SIGINT, _end)
    try:
        from lakemq.cli import app

        return app.main()
    except KeyboardInterrupt:  # while app.py was ending already
        return INTERRUPTED
    finally:
        if quietly:
            signal.signal(signal.SIGINT, _end)


def hand_over() -> None:
    """Gives SIGINT to the command that runs now: it is raised as KeyboardInterrupt. Called by app.py."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)
