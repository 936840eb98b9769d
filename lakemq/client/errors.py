"""The one error only a client can have, and how a broker's refusal becomes an error again.

The tree itself stands in store_native/errors.py; the classes a caller sees here are the same ones
the store raises, rebuilt from the problem's ``code``. Called by transport.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from store_native.errors import LakeMQError, from_code

# What RFC 9457 itself names; everything else of a problem is context for the caller.
_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "code", "retryable"})


class OutcomeUnknown(LakeMQError):
    """The request left, no answer came: it may or may not have been carried out.

    Send again with the same Idempotency-Key (a repeat stores nothing new), or look before sending
    again. Never raised for reads, nor for a send that has a key until its retries are used up.
    """

    def __init__(self, code: str = "OUTCOME_UNKNOWN", detail: str = "", **context: Any) -> None:
        super().__init__(code, detail, **context)


def from_problem(status: int, headers: Mapping[str, str], body: bytes) -> LakeMQError:
    """Builds the error of a non-2xx answer.

    Args:
        status: The HTTP status.
        headers: The answer's headers (any case-insensitive mapping).
        body: ``application/problem+json``, or whatever a proxy in between wrote.

    Returns:
        The class the broker raised; a code is guessed from the status when the answer is not the
        broker's own (a proxy's HTML page, an empty body).
    """
    problem = _parse(body)
    code = problem.get("code")
    if not isinstance(code, str):
        code = _code_of_status(status)
    detail = problem.get("detail") or problem.get("title") or _first_words(body) or f"HTTP status {status}"
    context = {key: value for key, value in problem.items() if key not in _STANDARD}
    context["http_status"] = status
    _lift_pointer(context)
    if "retry_after_ms" not in context:
        seconds = headers.get("Retry-After", "")
        if seconds.isdigit():
            context["retry_after_ms"] = int(seconds) * 1000
    return from_code(code, str(detail), **context)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(body)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _lift_pointer(context: dict[str, Any]) -> None:
    """Puts the first error's pointer where the store's own errors have it."""
    errors = context.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict) and "pointer" in errors[0]:
        context.setdefault("pointer", errors[0]["pointer"])


def _code_of_status(status: int) -> str:
    if status in (502, 503, 504):
        return "SERVICE_NOT_AVAILABLE"
    if status == 429:
        return "TOO_MANY_REQUESTS"
    if status >= 500:
        return "SYSTEM_ERROR"
    return "ARGUMENT_ILLEGAL"


def _first_words(body: bytes) -> str:
    return " ".join(body[:200].decode("utf-8", "replace").split())
