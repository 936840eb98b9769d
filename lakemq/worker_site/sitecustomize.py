"""What Python runs first in each worker of a local session: PySpark comes from where it is installed.

Owns one change to the workers' path. Spark puts pyspark.zip before everything else, and Python compiles
a zip's modules anew in every process: half a second of processor time, and a busy machine misses the
10 seconds, fixed in Spark, that a data source's worker has to connect back. The session runs its workers
with its own Python, whose packages hold the same PySpark, compiled. Where they do not, nothing changes.
And it owns the silence of a worker of PySpark's that starts when its query has been stopped: the JVM
listens no more, and the stack about that is nobody's. While the JVM listens, it tells itself what failed.
"""

import sys
import traceback
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import TracebackType


def _installed(path: list[str]) -> bool:
    return all(PathFinder.find_spec(name, path) is not None for name in ("pyspark", "py4j"))


def _run_shadowed(path: list[str]) -> None:
    """Runs the environment's own sitecustomize, which this one hides."""
    spec = PathFinder.find_spec(__name__, path)
    if spec is not None and spec.loader is not None:
        own = sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(own)


def _hush(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """Shows what ended a worker, but for a JVM that is gone."""
    gone = isinstance(error.__context__, FileNotFoundError | ConnectionRefusedError)
    if not (gone and "CANNOT_OPEN_SOCKET" in str(error)):
        traceback.print_exception(kind, error, at)


if any(word.startswith("pyspark.") for word in sys.orig_argv[1:3]):  # python -m pyspark...
    sys.excepthook = _hush

_rest = [
    entry
    for entry in sys.path
    if not (Path(entry).name == "pyspark.zip" or Path(entry).name.startswith("py4j-"))
]
if _installed(_rest):
    sys.path[:] = _rest
_run_shadowed([entry for entry in sys.path if Path(entry) != Path(__file__).parent])
