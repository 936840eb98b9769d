"""The ``lakemq`` command as a task of a cluster: with the session that the cluster gives.

Owns that session's becoming the active one, by which a ledger in a catalog is reached.
"""

from __future__ import annotations

import sys

from lakemq.cli import app


def main() -> None:
    """Runs the words of the task's parameters; a failure is the task's.

    Raises:
        SystemExit: The command's exit code is not 0.
    """
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    if (code := app.main(sys.argv[1:])) != 0:
        raise SystemExit(code)
