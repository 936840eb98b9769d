"""The process that forks Spark's Python workers, quiet about workers the JVM has done with.

Owns what differs from PySpark's own daemon. Spark closes the socket of a worker whose work it has
stopped or has all of; the worker's last flush then fails, and PySpark's daemon prints a stack for each
such worker at nearly every stop of a query. Here it ends with the same exit code and no word; every
other failure is shown as before. Named by ``spark.python.daemon.module``; the JVM runs it as
``python -m lakemq.spark_daemon pyspark.worker``. Spark ignores that name for the workers that plan a
data source: those hush themselves. Imports nothing that starts a thread: it forks.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace

from lakemq import own_packages

_HUNG_UP = (BrokenPipeError, ConnectionResetError)


def main() -> None:
    """Serves the JVM until it closes our standard input."""
    from pyspark import daemon

    own_packages.claim()
    daemon.worker = ended_quietly(daemon.worker)
    daemon.manager()


def ended_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """Returns a worker that ends the process without a stack when the JVM has hung up."""

    def run(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except _HUNG_UP:
            os._exit(1)  # what PySpark's daemon does after it has printed the stack

    return run


def hush_worker() -> None:
    """Makes this process, if PySpark's own daemon forked it, say nothing when the JVM has hung up."""
    forked = sys.modules.get("__main__")
    spec = getattr(forked, "__spec__", None)
    if forked is not None and spec is not None and spec.name == "pyspark.daemon":
        # The one name through which the daemon prints, in this worker alone.
        quiet = SimpleNamespace(print_exc=_print_what_matters, format_exc=traceback.format_exc)
        vars(forked)["traceback"] = quiet


def _print_what_matters() -> None:
    if not isinstance(sys.exception(), _HUNG_UP):
        traceback.print_exc()


if __name__ == "__main__":
    main()
