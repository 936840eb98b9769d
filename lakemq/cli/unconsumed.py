"""What groups have to consume of a topic, and waiting until that is nothing.

Owns the count, at all brokers, and its words.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lakemq.cli.consumer_lag import lag_and_away
from lakemq.client import Client
from lakemq.terminal.failure import CommandFailed

_LOOK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Unconsumed:
    """What a group has to consume of a topic at one broker.

    Attributes:
        broker_name: Empty where there is one broker, or none that says so.
        messages: How many; None: it is not known.
        unavailable: Why it is not.
    """

    group: str
    broker_name: str = ""
    messages: int | None = None
    unavailable: str | None = None

    def __str__(self) -> str:
        if self.messages is None:
            return f"it is not known what group {self.group} has to consume ({self.unavailable})"
        at = f" at {self.broker_name}" if self.broker_name else ""
        return f"group {self.group} has {self.messages} messages to consume{at}"


def unconsumed(client: Client, topic: str) -> list[Unconsumed]:
    """Returns what groups have to consume of a topic, by group and broker; the largest first.

    A group counts that has committed an offset of the topic; what waits for a delay or a retry does not.
    """
    found: list[Unconsumed] = []
    for config in client.groups():
        group = config.group
        rows, away = lag_and_away(client, group, topic)
        lags: dict[str, int] = {}
        for row in rows:
            name = row.get("broker_name", "")
            lags[name] = lags.get(name, 0) + (row["lag"] or 0)
        found += [Unconsumed(group, name, lag) for name, lag in lags.items() if lag]
        found += [Unconsumed(group, unavailable=error.detail) for error in away if rows]
    return sorted(found, key=lambda one: -(one.messages or 0))


def wait_consumed(client: Client, topic: str, seconds: float) -> list[Unconsumed]:
    """Waits until groups have nothing of a topic to consume; returns that.

    Raises:
        CommandFailed: One still has, or it is not known.
    """
    until = time.monotonic() + seconds
    while left := unconsumed(client, topic):
        if time.monotonic() >= until:
            raise CommandFailed(f"nothing was changed: after {seconds:g} s {in_words(left)}")
        time.sleep(_LOOK_AGAIN_S)
    return left


def in_words(left: Sequence[Unconsumed]) -> str:
    """Says it; nothing of nothing."""
    return "; ".join(map(str, left))
