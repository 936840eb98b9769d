"""Which attempt at a Spark task this is.

Owns the question; outside a task it is the first.

Processes: executors.
"""

from __future__ import annotations

from pyspark import TaskContext


def of_this_task() -> int:
    """How often Spark has started this task before."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
