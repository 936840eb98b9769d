"""What Python runs first in each worker of a local session: PySpark comes from where it is installed.

Owns one change to the workers' path. Spark puts pyspark.zip before everything else, and Python compiles
a zip's modules anew in every process: half a second of processor time, and a busy machine misses the
10 seconds, fixed in Spark, that a data source's worker has to connect back. The session runs its workers
with its own Python, whose packages hold the same PySpark, compiled. Where they do not, nothing changes.
And it owns the silence of a worker of PySpark's own whose query has been stopped: the JVM listens no more,
or hung up while the worker computed, and the stack about that is nobody's. While the JVM listens, it tells
itself what failed.
"""

import os
import sys
import traceback
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import TracebackType
from typing import Any


def _installed(path: list[str]) -> bool:
    return all(PathFinder.find_spec(name, path) is not None for name in ("pyspark", "py4j"))


def _run_shadowed(path: list[str]) -> None:
    """Runs the environment's own sitecustomize, which this one hides."""
    spec = PathFinder.find_spec(__name__, path)
    if spec is not None and spec.loader is not None:
        own = sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(own)


_HUNG_UP = (BrokenPipeError, ConnectionResetError)


def _hush(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """Shows what ended a worker, but for a JVM that is gone."""
    gone = isinstance(error.__context__, FileNotFoundError | ConnectionRefusedError)
    if not (isinstance(error, _HUNG_UP) or (gone and "CANNOT_OPEN_SOCKET" in str(error))):
        traceback.print_exception(kind, error, at)


_print_exc = traceback.print_exc


def _print_what_matters(*arguments: Any, **named: Any) -> None:
    """Stands for traceback.print_exc, and is silent where PySpark's daemon prints what ended a worker."""
    error = sys.exception()
    caught = error.__traceback__.tb_frame.f_globals.get("__name__") if error and error.__traceback__ else None
    if not (isinstance(error, _HUNG_UP) and caught == "__main__"):
        _print_exc(*arguments, **named)


if any(word.startswith("pyspark.") for word in sys.orig_argv[1:3]):  # python -m pyspark...
    sys.excepthook = _hush
if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:  # Spark's for what plans a data source
    traceback.print_exc = _print_what_matters
    # Without it PySpark prints the stack of a failed flush itself; Spark sets it for tasks only.
    os.environ.setdefault("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", "1")

_rest = [
    entry
    for entry in sys.path
    if not (Path(entry).name == "pyspark.zip" or Path(entry).name.startswith("py4j-"))
]
if _installed(_rest):
    sys.path[:] = _rest
_run_shadowed([entry for entry in sys.path if Path(entry) != Path(__file__).parent])
