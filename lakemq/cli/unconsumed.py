"""What groups have to consume of a topic, and waiting until that is nothing.

Owns the count, at all brokers, and its words.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemq.cli.consumer_lag import lag_and_away
from lakemq.client import Client, InvalidRequest, Unavailable
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

    A group counts that has committed an offset of the topic: where it has none of a queue, all of that. What
    waits for a delay or a retry does not count.
    """
    found: list[Unconsumed] = []
    for config in client.groups():
        group = config.group
        rows, away = lag_and_away(client, group, topic)
        lags: dict[str, int] = {}
        for row in rows:
            name = row.get("broker_name", "")
            lags[name] = lags.get(name, 0) + (row["lag"] or 0)
        if rows:
            for name, messages in _never_committed(client, topic, rows):
                lags[name] = lags.get(name, 0) + messages
        found += [Unconsumed(group, name, lag) for name, lag in lags.items() if lag]
        found += [Unconsumed(group, unavailable=error.detail) for error in away if rows]
    return sorted(found, key=lambda one: -(one.messages or 0))


def _never_committed(
    client: Client, topic: str, rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, int]]:
    """What each broker that answers has in queues of which a group has no offset; the others are named."""
    committed = {(row.get("broker_name", ""), row["queue_id"]) for row in rows}
    brokers = client.brokers() if client.is_cluster() else {"": client}
    for name, broker in brokers.items():
        try:
            queues = broker.queues(topic)
        except Unavailable:
            continue
        except InvalidRequest as error:
            if error.code != "TOPIC_NOT_EXIST":
                raise
            continue
        lengths = {queue.queue_id: queue.max_offset - queue.min_offset for queue in queues}
        yield name, sum(held for queue_id, held in lengths.items() if (name, queue_id) not in committed)


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
