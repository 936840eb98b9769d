"""Waits of tests: on a condition with a deadline, never for a time that is hoped to be enough.

Owns the pause between two looks at a condition and the deadline of a wait that names none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.02


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
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise() if callable(otherwise) else otherwise)
        time.sleep(_LOOK_AGAIN_S)


async def wait_until_async(
    condition: Callable[[], bool],
    timeout_s: float = DEADLINE_S,
    otherwise: str | Callable[[], object] = "the condition did not come true",
) -> None:
    """As :func:`wait_until`, while the event loop goes on."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise() if callable(otherwise) else otherwise)
        await asyncio.sleep(_LOOK_AGAIN_S)
