"""P12's handler: a message takes 100 ms of waiting. A module of its own, for Spark's workers import it."""

from __future__ import annotations

import time

from lakemq import Message

CALL_S = 0.1


def wait(message: Message) -> None:
    """Waits, as a handler does for a service, and acknowledges."""
    time.sleep(CALL_S)
