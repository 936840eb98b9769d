"""The process that forks Spark's Python workers, which end quietly and close what they have opened.

Owns what differs from PySpark's own daemon. Spark closes the socket of a worker whose work it has
stopped or has all of; the worker's last flush then fails, and PySpark's daemon prints a stack for each
such worker at nearly every stop of a query. Here it ends with the same exit code and no word; every
other failure is shown as before. A worker that Spark has no use for, as one that had nothing to do for a
minute, is asked to end before it is killed: its handler may have something to close. Named by
``spark.python.daemon.module``; the JVM runs it as ``python -m lakemq.spark_daemon pyspark.worker``. Spark
ignores that name for the workers that plan a data source: in a session of ours worker_site/sitecustomize.py
hushes those, elsewhere they hush themselves. Imports nothing that starts a thread: it forks.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from types import SimpleNamespace
from typing import Any

from lakemq import own_packages, sent_files

_HUNG_UP = (BrokenPipeError, ConnectionResetError)
_FLUSH_FAILURE_ENDS = "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"
"""With it a worker that cannot flush ends; without, PySpark prints the stack itself and goes on. Spark sets
it for the workers of tasks only."""


END_S = 6.0
"""What a worker has to end in before it is killed: a second more than `close` of its handler may take."""


def main() -> None:
    """Serves the JVM until it closes our standard input."""
    from pyspark import daemon

    own_packages.claim()
    sent_files.leave_first_place()
    hush(vars(daemon))
    vars(daemon)["os"] = SimpleNamespace(**(vars(os) | {"kill": kill}))
    daemon.manager()


def kill(pid: int, number: int, end_s: float = END_S) -> None:
    """Sends a signal as `os.kill` does; a worker that is to be killed is asked to end first.

    A process of its own waits for that: the daemon has no thread, and goes on.

    Where there is no process or descriptor to be had for that, it is killed at once.

    Args:
        pid: Of the process.
        number: The signal.
        end_s: Seconds to end in.

    Raises:
        OSError: There is no such process.
    """
    if number != signal.SIGKILL:
        os.kill(pid, number)
        return
    try:
        process = os.pidfd_open(pid)  # it stays this process, whoever gets its number
    except ProcessLookupError:
        raise
    except OSError:
        os.kill(pid, signal.SIGKILL)
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if os.fork() == 0:
            _kill_after(process, end_s)
    except OSError:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


def _kill_after(process: int, end_s: float) -> None:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the daemon's own ends all workers
        if not select.select([process], [], [], end_s)[0]:
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os._exit(0)


def hush(daemon: dict[str, Any]) -> None:
    """Makes a daemon's workers end without a stack when the JVM has hung up.

    Args:
        daemon: The names of PySpark's module; it prints through ``traceback`` before it ends a worker.
    """
    os.environ.setdefault(_FLUSH_FAILURE_ENDS, "1")
    daemon["traceback"] = SimpleNamespace(print_exc=_print_what_matters, format_exc=traceback.format_exc)


def hush_worker() -> None:
    """Makes this process, if PySpark's own daemon forked it, say nothing when the JVM has hung up."""
    forked = sys.modules.get("__main__")
    spec = getattr(forked, "__spec__", None)
    if forked is not None and spec is not None and spec.name == "pyspark.daemon":
        hush(vars(forked))  # the names of this worker alone


def _print_what_matters() -> None:
    if not isinstance(sys.exception(), _HUNG_UP):
        traceback.print_exc()


if __name__ == "__main__":
    main()
