"""A process that a library starts for us, and does not end when its start is interrupted.

Owns what is found of it then: a child of this thread that leads a session of its own, and that this process
did not have before.
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
    before = _children("*")
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        now = _children(str(threading.get_native_id()))
        for child in now - before if now is not None and before is not None else ():
            with suppress(OSError):
                if os.getsid(child) == child:  # as PySpark's JVM is started
                    os.kill(child, signal.SIGKILL)
        raise


def _children(thread: str) -> set[int] | None:
    """Those of a thread, or of all by `*`: one that ends leaves them to another. None: it cannot be told."""
    found: set[int] = set()
    try:
        for each in Path("/proc/self/task").glob(f"{thread}/children"):
            found.update(map(int, each.read_text().split()))
    except OSError:
        return None
    return found
