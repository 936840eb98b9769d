"""The numbers a producer is told: how long messages linger, how much goes at once, how much may wait.

Owns their defaults and their bounds.

Invariants: a producer that is made has numbers that a clock and a thread can wait for.
"""

from __future__ import annotations

from lakemq.client.transport import LONGEST_RETRY_UNTIL_S, check_retry_until
from lakemq.duration import MAX_MS
from store_native.errors import InvalidRequest

LINGER_MS = 10
BATCH_BYTES = 32 * 1024
MAX_PENDING_BYTES = 100 * 1024 * 1024


def check_numbers(
    linger_ms: float, batch_bytes: int, max_pending_bytes: int, retry_until: float | None
) -> None:
    """Refuses what no producer can go by; arguments as of :class:`lakemq.Producer`.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if not (_is_number(linger_ms) and 0 <= linger_ms <= MAX_MS):
        raise _illegal("linger_ms", linger_ms, f"a number from 0 to {MAX_MS:,}")
    for name, value in (("batch_bytes", batch_bytes), ("max_pending_bytes", max_pending_bytes)):
        if not (_is_number(value) and value > 0):
            raise _illegal(name, value, "a number above 0")
    check_retry_until(retry_until)


def check_timeout(timeout: float | None) -> None:
    """Refuses what nobody can wait for; None waits as long as it takes.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if timeout is not None and not (_is_number(timeout) and 0 <= timeout <= LONGEST_RETRY_UNTIL_S):
        raise _illegal("timeout", timeout, f"a number of seconds from 0 to {LONGEST_RETRY_UNTIL_S:,.0f}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _illegal(name: str, value: object, wanted: str) -> InvalidRequest:
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{name}: is {value!r}, not {wanted}")
