"""The one error only a client can have, and how a broker's refusal becomes an error again.

Owns `OutcomeUnknown` and the translation of a problem; the tree itself is in store_native/errors.py.

Invariants: a caller sees the class that the store raised, rebuilt from the problem's ``code``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from store_native.errors import Closed, LakeMQError, Unavailable, from_code

# What RFC 9457 itself names; everything else of a problem is context for the caller.
_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "code", "retryable"})
# What the errors' own arguments are called.
_TAKEN = frozenset({"self", "cls", "code", "detail"})
_LONGEST_RETRY_AFTER_MS = 86_400_000
"""Of what a peer asks for; no caller waits longer than a day."""
_MOST_DIGITS = 9


class OutcomeUnknown(LakeMQError):
    """A send left, and no answer of the broker's came: it may or may not be stored.

    With an Idempotency-Key the same send under the same key is safe: what is stored already is
    answered, not stored again. Without one, look before sending again. Never raised for calls that
    store no messages.

    The text carries the key too, because a Spark worker hands on nothing but text.
    """

    def __init__(self, code: str = "OUTCOME_UNKNOWN", detail: str = "", **context: Any) -> None:
        super().__init__(code, detail, **context)

    @classmethod
    def of(cls, what: str, idempotency_key: str | None, **context: Any) -> OutcomeUnknown:
        """Builds the error of a send about which ``what`` is known."""
        advice = (
            "without an Idempotency-Key a repeat may store it twice, so look first"
            if idempotency_key is None
            else f"sending the same again with Idempotency-Key {idempotency_key!r} is safe"
        )
        return cls(
            detail=f"{what}; it may be stored or not: {advice}", idempotency_key=idempotency_key, **context
        )

    @property
    def idempotency_key(self) -> str | None:
        """The key the send went out with; None when it had none."""
        key = self.context.get("idempotency_key")
        return None if key is None else str(key)


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
    detail = problem.get("detail") or problem.get("title") or _first_words(body) or f"HTTP status {status}"
    if not isinstance(code, str):
        code = _code_of_status(status)
        detail = f"this answer (HTTP status {status}) is no LakeMQ broker's own: {detail}"
    context = {key: value for key, value in problem.items() if key not in _STANDARD | _TAKEN}
    context["http_status"] = status
    _lift_pointer(context)
    asked = context.pop("retry_after_ms", None)
    if type(asked) not in (int, float):
        asked = _retry_after_ms(headers.get("Retry-After", ""))
    if asked is not None and asked == asked:  # not NaN
        context["retry_after_ms"] = min(max(0, asked), _LONGEST_RETRY_AFTER_MS)
    return from_code(code, str(detail), **context)


def may_pass(error: LakeMQError) -> bool:
    """Says whether waiting can help.

    It can when the broker is away, overloaded, or closed for a restart, or its answer got lost: for calls
    that may be repeated.
    """
    return isinstance(error, Unavailable | OutcomeUnknown | Closed) or error.code == "REQUEST_TIMEOUT"


def is_brokers_own(body: bytes) -> bool:
    """Says whether a refusal is the broker's: a proxy's says nothing about what became of a send."""
    return isinstance(_parse(body).get("code"), str)


def _retry_after_ms(text: str) -> int | None:
    """Reads a Retry-After header: seconds, or the date a proxy may write."""
    if text.isascii() and text.isdigit():
        return int(text) * 1000 if len(text) <= _MOST_DIGITS else _LONGEST_RETRY_AFTER_MS
    try:
        moment = parsedate_to_datetime(text).timestamp()
    except (IndexError, OSError, OverflowError, TypeError, ValueError):
        return None
    return max(0, round((moment - time.time()) * 1000))


def _parse(body: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(body)
    except (RecursionError, ValueError):
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
