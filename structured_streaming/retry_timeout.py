"""Calls of source and sink that are repeated while their broker is away, busy or restarting.

Owns the default of `retryTimeoutMs` and the pauses between two tries.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError

RETRY_TIMEOUT_MS = 120_000
"""The default of the option retryTimeoutMs, of source and sink."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
TOLD_AFTER_S = 10.0
"""How long a wait lasts before it is said."""

_chance = random.SystemRandom()
"""Not the program's own generator: one that is seeded would make all its tasks return together."""

_Answer = TypeVar("_Answer")


def retry_until(
    call: Callable[[], _Answer],
    timeout_s: float,
    *,
    waits: Callable[[LakeMQError], None] = lambda error: None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> _Answer:
    """Repeats a call that may be repeated while the broker is away, busy or restarting.

    Args:
        call: The call.
        timeout_s: For how long.
        waits: Told once why, when it has lasted longer than a broker's restart.
        clock: Monotonic seconds.
        pause: Waits between two tries.

    Raises:
        LakeMQError: The last refusal when ``timeout_s`` is over, or at once one that stays.
    """
    began = clock()
    until = began + timeout_s
    told = False
    longest = FIRST_PAUSE_S
    while True:
        try:
            return call()
        except LakeMQError as error:
            left = until - clock()
            if not may_pass(error) or left <= 0:
                raise
            if not told and clock() - began >= TOLD_AFTER_S:
                told = True
                waits(error)
            asked = float(error.context.get("retry_after_ms") or 0) / 1000
            pause(min(max(longest * _chance.uniform(0.5, 1.0), asked), LONGEST_PAUSE_S, left))
            longest = min(longest * 2, LONGEST_PAUSE_S)
