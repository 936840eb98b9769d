"""Whether a batch failed because a worker died under its handler.

Owns the telling apart of Spark's failures. They have no class of their own in Python: the JVM's texts are all
there is.

Invariants: what is not known is not taken for a death, and ends the job with its own reason.
"""

from __future__ import annotations

import re

DIED_BEFORE = "the worker of this part died before"
"""What a task says that must not be tried again."""
_DEATHS = (
    "Python worker exited unexpectedly",  # it ended, by a signal, os._exit() or the kernel's hand
    "Python worker process terminated",
    "EOFException occurred while reading the port number from",  # that of the daemon that starts them
    "ExecutorLostFailure",  # with all its workers: a container killed for its memory
    DIED_BEFORE,
)
_TRIES = re.compile(r"failed (\d+) times, most recent failure")


def is_worker_death(error: Exception) -> bool:
    """Says whether a Spark action failed because the process of a Python worker ended."""
    return any(text in str(error) for text in _DEATHS)


def tries_before(error: Exception) -> int:
    """How often Spark had tried the task whose failure ended its job."""
    found = _TRIES.search(str(error))
    return 1 if found is None else int(found[1])
