"""Where every ``lakemq`` command begins: Ctrl-C ends it without a stack, however early or late it comes.

Owns the order of a command's first steps.

Invariants: nothing that takes time is imported before SIGINT is taken care of.
"""

from __future__ import annotations

from lakemq.terminal import interrupts


def main() -> int:
    """Runs one command and returns its exit code; see app.py."""
    with interrupts.EndedQuietly():
        try:
            from lakemq.cli import app

            return app.main()
        except KeyboardInterrupt:  # while app.py was ending already
            return interrupts.INTERRUPTED
