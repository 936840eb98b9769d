"""A receiver of OpenLineage's events: JSON over HTTP, on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.post_receiver import post_receiver


@dataclass
class LineageReceiver:
    """What came.

    Attributes:
        endpoint: For OPENLINEAGE_URL.
        answers: While it is not set, requests are taken and not answered.
        asked: Set when the first request has come.
        events: In the order they came in.
    """

    endpoint: str = ""
    answers: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def states(self) -> list[str]:
        """What became of the runs."""
        return [event["eventType"] for event in self.events]

    def take(self, body: bytes) -> None:
        """Takes an event."""
        self.events.append(json.loads(body))


def datasets(event: dict[str, Any], side: str) -> list[tuple[str, str]]:
    """Of an event's `inputs` or `outputs`, their namespaces and names."""
    return [(each["namespace"], each["name"]) for each in event[side]]


@contextmanager
def lineage_receiver(*, answers: bool = True, status: int = 200) -> Iterator[LineageReceiver]:
    """Runs a receiver; without `answers` it leaves requests unanswered until the block ends."""
    receiver = LineageReceiver()
    if answers:
        receiver.answers.set()
    with post_receiver(receiver.take, receiver.asked, receiver.answers, status) as receiver.endpoint:
        yield receiver
