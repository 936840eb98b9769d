"""Why a stream ended: what of Spark's stacks of stacks a reader is told.

Owns the telling apart of Spark's failures. They have no class of their own in Python: the JVM's texts are all
there is.

Invariants: what is not known is not taken for a start that came too late, nor for the end of a process that
can be started again.
"""

from __future__ import annotations

from pyspark.errors import StreamingQueryException

_OF_THE_JVM = "py4j.protocol.Py4JJavaError: "
_CAUSES = (": ", "Caused by: ")
_OTHER_TABLE = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
_TOO_LATE = ("Python worker failed to connect back", "waiting for the Python worker to connect back")
_PLANNER = "PythonStreamingSourceRunner"
_LOST_CONNECTIONS = ("java.io.IOException", "java.io.EOFException", "java.net.SocketException")


def reason_of(failed: StreamingQueryException) -> str:
    """The line that says why, out of Spark's stacks of stacks: the innermost Python error.

    Where the JVM failed that says nothing but so: it is the innermost cause with a text then.
    """
    if _OTHER_TABLE in str(failed):
        return (
            "the ledger was made anew since this checkpoint was: delete the checkpoint, and the group "
            "goes on where ledger and broker say"
        )
    lines = _lines(failed)
    if is_planner_death(failed):
        return f"the process in which its source plans ended again and again: {lines[0]}"
    if is_start_too_late(failed):
        return f"the process in which its source plans did not start in time, again and again: {lines[0]}"
    named = [at for at, line in enumerate(lines) if _names_an_error(line)]
    if not named:
        # Where a write of Spark's own failed, only its cause says why.
        causes = [line for line in _lines(_stack_of_its_cause(failed)) if _names_an_error(line)]
        return causes[-1] if causes else lines[0]
    said = lines[named[-1]]
    if not said.startswith(_OF_THE_JVM):
        return said
    begun = (
        line.removeprefix(begin) for line in lines[named[-1] :] for begin in _CAUSES if line.startswith(begin)
    )
    causes = [cause for cause in begun if _names_an_error(cause)]
    return causes[-1] if causes else said


def is_start_too_late(failed: Exception) -> bool:
    """Whether Spark waited for the Python process of a source, which has ten seconds to connect back."""
    return any(text in str(failed) for text in _TOO_LATE)


def is_planner_death(failed: Exception) -> bool:
    """Whether the Python process in which a source plans ended: the JVM had a connection to nobody."""
    causes = _stack_of_its_cause(failed).split(_CAUSES[1])
    return any(cause.startswith(_LOST_CONNECTIONS) and _PLANNER in cause for cause in causes)


def _stack_of_its_cause(failed: Exception) -> str:
    """What the JVM has of the causes; PySpark shows it only where that is set."""
    cause = getattr(failed, "_cause", None)
    return str(getattr(cause, "_stackTrace", ""))


def _lines(said: object) -> list[str]:
    return [line.strip() for line in str(said).splitlines() if line.strip()]


def _names_an_error(line: str) -> bool:
    """Whether a line is `module.Class: text`, or a class without a module that is named as errors are."""
    head, colon, _ = line.partition(": ")
    *modules, last = head.split(".")
    if not colon or not all(part.isidentifier() for part in (*modules, last)):
        return False
    named_so = last.endswith(("Error", "Exception", "Request", "Unavailable"))
    return named_so or (bool(modules) and last[:1].isupper())
