"""What an error of a function of DataFrames says, out of Spark's stacks of stacks.

Owns finding the Python error that a worker raised, or the first cause, in Spark's text about it. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from jobs.handler import reasons
from jobs.handler.verdicts import Outcome, failure

_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = "Caused by: "
_CALLED = ": "
"""Before the exception of a call into the JVM, in Py4J's text."""
_JVM_STACK = "JVM stacktrace:"


def failure_of(error: BaseException) -> Outcome:
    """What it says of the messages: RETRY, with the error of the user's own code where there is one."""
    outcome = failure(error)
    found = raised_in_worker(str(error)) or innermost_cause(str(error))
    if found is None:
        return replace(outcome, error_text=reasons.reason_text(_text(error)))
    kind, text = found
    return replace(outcome, error_type=reasons.reason_text(kind), error_text=reasons.reason_text(text))


def described(error: BaseException) -> str:
    """One line: the error's class, unless it is only a form that was not kept, and its text."""
    text = " ".join(_text(error).split())
    return text if type(error) in (TypeError, ValueError) else f"{type(error).__name__}: {text}"


def raised_in_worker(text: str) -> tuple[str, str] | None:
    """Class and text of the Python error in Spark's text, None when it names none."""
    _, found, trace = text.rpartition(_TRACEBACK)
    if not found:
        return None
    lines = trace.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.strip() and not line[0].isspace()), None)
    if begin is None:
        return None
    said = []
    for line in lines[begin:]:
        if not line.strip() or line.startswith("\tat "):
            break
        said.append(line)
    name, _, rest = "\n".join(said).partition(": ")
    return name.rpartition(".")[2], rest


def innermost_cause(text: str) -> tuple[str, str] | None:
    """Class and text of the last cause in a stack of Java's that says something, None when there is none."""
    lines = text.splitlines()
    begun = [
        line.removeprefix(begin) for line in lines for begin in (_CALLED, _CAUSE) if line.startswith(begin)
    ]
    causes = [line.partition(": ") for line in begun]
    telling = [(name.rpartition(".")[2], rest) for name, _, rest in causes if rest]
    return telling[-1] if telling else None


def _text(error: BaseException) -> str:
    return str(error).partition(_JVM_STACK)[0].strip()
