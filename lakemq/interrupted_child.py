"""A process that a library starts for us, and does not end when its start is interrupted.

Owns what is found of it then: the children of this thread that were not there before.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def killed_when_interrupted() -> Iterator[None]:
    """Kills what the block has started, when Ctrl-C or an exit ends it.

    PySpark waits for its JVM to write its port into a directory, and takes that away when it is interrupted:
    the JVM cannot write it then, and lives on for ever.
    """
    before = _children()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        for child in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise


def _children() -> set[int]:
    thread = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    try:
        return set(map(int, thread.read_text().split()))
    except OSError:  # a kernel that does not say
        return set()
