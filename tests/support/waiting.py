"""Waits of tests: on a condition with a deadline, never for a time that is hoped to be enough.

Owns the pause between two looks at a condition and the deadline of a wait that names none.

Invariants: a wait leaves the processor to what it waits for: a long look is followed by a longer pause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_PAUSES_PER_LOOK: Final = 4
"""How much longer than a look the pause behind it is."""


def pause_s(look_s: float) -> float:
    """The pause behind a look that took so many seconds, in seconds."""
    return min(max(_LOOK_AGAIN_S, _PAUSES_PER_LOOK * look_s), _LONGEST_PAUSE_S)


def wait_until(
    condition: Callable[[], bool],
    timeout_s: float = DEADLINE_S,
    otherwise: str | Callable[[], object] = "the condition did not come true",
) -> None:
    """Looks at a condition until it is true.

    Args:
        condition: Asked at least once; what it raises ends the wait.
        timeout_s: How long it may take.
        otherwise: What the failure says, or a function that is asked for it then.

    Raises:
        AssertionError: It is still false at the deadline.
    """
    began = time.monotonic()
    deadline = began + timeout_s
    while not condition():
        looked = time.monotonic()
        if looked > deadline:
            raise AssertionError(otherwise() if callable(otherwise) else otherwise)
        time.sleep(pause_s(looked - began))
        began = time.monotonic()


async def wait_until_async(
    condition: Callable[[], bool],
    timeout_s: float = DEADLINE_S,
    otherwise: str | Callable[[], object] = "the condition did not come true",
) -> None:
    """As :func:`wait_until`, while the event loop goes on."""
    began = time.monotonic()
    deadline = began + timeout_s
    while not condition():
        looked = time.monotonic()
        if looked > deadline:
            raise AssertionError(otherwise() if callable(otherwise) else otherwise)
        await asyncio.sleep(pause_s(looked - began))
        began = time.monotonic()
