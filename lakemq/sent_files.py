"""Modules that are sent to where tasks run: they are imported there, in place of others of their names.

Owns how PySpark is told of them and their place on a process's path.

Invariants: what was sent comes before the working directory and whatever else lies about, on every host and
in the process that sends it; LakeMQ's own packages come before both (own_packages.py). Without Spark nothing
changes.

Callers: session() and the entry points before files are added, spark_daemon in the process that forks
workers, the loader of handlers wherever one is imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_WHEEL = ".whl"
_WORKER_SITE = Path(__file__).with_name("worker_site")


def take_wheels() -> None:
    """Has PySpark put wheels on the path of its workers, as it does zip files, which they are.

    For files that are added from now on: those of ``spark-submit`` are when a context is made.
    """
    from pyspark import SparkContext

    if _WHEEL not in SparkContext.PACKAGE_EXTENSIONS:
        SparkContext.PACKAGE_EXTENSIONS = (*SparkContext.PACKAGE_EXTENSIONS, _WHEEL)


def leave_first_place() -> None:
    """Has a worker put what was sent before its working directory.

    PySpark puts it second. What comes first from now on holds no module that anybody imports.
    """
    sys.path.insert(0, str(_WORKER_SITE))


def put_first() -> None:
    """Puts what was sent to this process at the begin of its path."""
    sent = _sent()
    sys.path[:] = [*sent, *(entry for entry in sys.path if entry not in sent)]


def _sent() -> list[str]:
    """The entries of the path that are what was sent, in their order."""
    spark_files = getattr(sys.modules.get("pyspark"), "SparkFiles", None)
    if spark_files is not None and spark_files._is_running_on_worker:  # noqa: SLF001
        root = Path(spark_files.getRootDirectory()).absolute()
        return [entry for entry in sys.path if root in (place := Path(entry).absolute(), place.parent)]
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has begun PYTHONPATH with it; its own follow.
        own = Path(os.environ.get("SPARK_HOME", os.sep), "python")
        for number, entry in enumerate(entries := os.environ.get("PYTHONPATH", "").split(os.pathsep)):
            if Path(entry).is_relative_to(own):
                return [each for each in sys.path if each in entries[:number]]
    return []
