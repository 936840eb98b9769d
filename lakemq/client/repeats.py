"""When a call is made again, and what its attempts come to together.

Owns the pauses between attempts.

Invariants: what could store a message twice is repeated only if nothing of it left, if the broker said that
it stored nothing, or if it has a key; no attempt begins after the deadline; "nothing was stored" is said only
when that is known of every attempt.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from lakemq.client.deadline import Deadline
from lakemq.client.errors import OutcomeUnknown
from store_native.errors import LakeMQError, Unavailable

Answer = TypeVar("Answer")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_chance = random.SystemRandom()  # a program that seeds its own would have its clients return together


def repeated(
    attempt: Callable[[], Answer],
    what: str,
    *,
    key: str | None,
    most: int | None,
    deadline: Deadline,
    pause: Callable[[float], None],
    endpoint: str,
) -> Answer:
    """Makes a call again until it goes well, cannot be repeated, or there is no time left.

    Args:
        attempt: Makes it once.
        what: The request in words.
        key: Its Idempotency-Key.
        most: How often it is repeated; None: as often as there is time.
        deadline: Until when an attempt may begin.
        pause: Waits so many seconds.
        endpoint: Whom it goes to, for the error.

    Raises:
        OutcomeUnknown: An attempt got no answer, and no later one went well.
        LakeMQError: What the last attempt came to.
    """
    lost = False
    repeats = 0
    while True:
        try:
            return attempt()
        except LakeMQError as error:
            lost = lost or isinstance(error, OutcomeUnknown)
            pause_s = _pause_before(repeats, error)
            used_up = most is not None and repeats >= most
            if used_up or not _may_repeat(error, key) or pause_s >= deadline.left():
                if lost and not isinstance(error, OutcomeUnknown):
                    # The refusal is about the repeat; what became of the first is still open.
                    said = f"{what} got no answer, and its repeat was refused ({error})"
                    raise OutcomeUnknown.of(said, key, endpoint=endpoint) from error
                raise
            pause(pause_s)
            repeats += 1


def _may_repeat(error: LakeMQError, key: str | None) -> bool:
    if isinstance(error, OutcomeUnknown):
        return key is not None
    # The broker, or nobody at all, answered: nothing is stored.
    return isinstance(error, Unavailable)


def _pause_before(repeats: int, error: LakeMQError) -> float:
    """Returns the pause before a repeat in seconds.

    It grows from 0.1 s to 2 s, half of it random so that clients do not return together; the broker's own
    Retry-After counts when it is longer.
    """
    own = min(_FIRST_PAUSE_S * (1 << min(repeats, 10)), _LONGEST_PAUSE_S) * _chance.uniform(0.5, 1.0)
    asked = float(error.context.get("retry_after_ms") or 0) / 1000
    return max(own, asked)
