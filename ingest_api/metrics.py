"""What the broker counts: RocketMQ 5's metric names and labels under the prefix ``lakemq_``.

Owns the counters that the HTTP side moves; the store counts its own. What never breaks: a counter
only grows, and a label set exists only for topics and groups that exist. Called on the event loop by
send.py, pull.py and error_handlers.py; exposition.py renders it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

MESSAGE_SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
LATENCY_BOUNDS_MS = (1, 3, 5, 10, 100, 1_000, 3_000)
MAX_LABEL_SETS = 10_000
"""Label sets beyond it are counted under the group or topic ``_other``."""


@dataclass(slots=True)
class Histogram:
    """Counts of values up to each bound, the last count for those above all."""

    bounds: tuple[int, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


@dataclass(slots=True)
class TopicIn:
    """What producers sent to one topic."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class TopicOut:
    """What one group (empty: unknown) pulled from one topic."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class BrokerMetrics:
    """All counters of the HTTP side."""

    topics_in: dict[str, TopicIn] = field(default_factory=dict)
    topics_out: dict[tuple[str, str], TopicOut] = field(default_factory=dict)
    message_size: Histogram = field(default_factory=lambda: Histogram(MESSAGE_SIZE_BOUNDS))
    latency_ms: dict[str, Histogram] = field(
        default_factory=lambda: {
            name: Histogram(LATENCY_BOUNDS_MS) for name in ("send", "bulk_send", "pull", "admin")
        }
    )
    errors: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    send_status: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    held_pulls: int = 0

    def sent(self, topic: str, messages: int, size: int) -> None:
        """Counts stored messages; a batch counts with its messages' mean size."""
        counter = self.topics_in.get(topic)
        if counter is None:
            counter = self._new_in(topic)
        counter.messages += messages
        counter.bytes += size
        if messages == 1:
            self.message_size.observe(size)
        elif messages:
            self.message_size.observe(size / messages, messages)

    def pulled(self, topic: str, group: str, messages: int, size: int) -> None:
        """Counts messages handed out."""
        counter = self.topics_out.get((topic, group))
        if counter is None:
            counter = self._new_out(topic, group)
        counter.messages += messages
        counter.bytes += size

    def refused(self, code: str) -> None:
        """Counts an answer that is a problem, by its code."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def turned_away(self, reason: str) -> None:
        """Counts a send that flow control refused, by the place that refused it."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def answered(self, status: str) -> None:
        """Counts a send whose status is not SEND_OK."""
        self.send_status[status] = self.send_status.get(status, 0) + 1

    def _new_in(self, topic: str) -> TopicIn:
        key = topic if len(self.topics_in) < MAX_LABEL_SETS else "_other"
        return self.topics_in.setdefault(key, TopicIn())

    def _new_out(self, topic: str, group: str) -> TopicOut:
        key = (topic, group) if len(self.topics_out) < MAX_LABEL_SETS else ("_other", "_other")
        return self.topics_out.setdefault(key, TopicOut())
