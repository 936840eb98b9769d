"""The end of Spark's JVM under a run, by the signal that asks the run to stop.

Owns the telling apart: a supervisor that signals every process of a service (systemd's default) ends the JVM
beside the driver, and that is a stop and no failure. A JVM that ends for another reason is one.

Processes: the driver.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END_S = 10.0
"""What a JVM that got the signal may take for what Spark does at its end."""
_ENDED = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Its status, when it ends as a signal ends it, and when it ends itself on one."""


class SparkEnded(Exception):
    """A stop was asked for, and Spark was ended by the same signal."""

    def __init__(self) -> None:
        super().__init__(
            "Spark got the signal too and has ended: the batch under way is given up, "
            "the next start repeats it"
        )


def jvm_of(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """The JVM that this process has started; None: somebody else's, as in a notebook."""
    context = getattr(spark, "sparkContext", None)
    process: subprocess.Popen[bytes] | None = getattr(getattr(context, "_gateway", None), "proc", None)
    return process


def ended_by_the_signal(spark: SparkSession) -> bool:
    """Whether the JVM ends as on SIGTERM; waits for an end that may have begun."""
    process = jvm_of(spark)
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        return process.wait(_END_S) in _ENDED
    return False


def stop(spark: SparkSession) -> None:
    """Stops a session, unless its JVM has ended already."""
    process = jvm_of(spark)
    if process is None or process.poll() is None:
        spark.stop()
