"""What the broker counts: RocketMQ 5's metric names and labels under the prefix ``lakemq_``.

Owns the counters of requests; the store counts its own, and what is there at the moment is in gauges.py.

Invariants: a counter only grows, and a label set exists only for topics and groups that exist.

Threads: counted on the event loop; a reading thread copies what it shows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

MESSAGE_SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
LATENCY_BOUNDS_MS = (1, 3, 5, 10, 100, 1_000, 3_000)
MAX_LABEL_SETS = 10_000
"""Label sets beyond it are counted under the group or topic ``_other``."""
_OTHER = "_other"


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
    """All counters of requests, whichever front door they came by.

    Attributes:
        group_exists: Asked before a group gets labels of its own: clients name groups as they like, and a
            name nobody created is counted under the empty group.
    """

    group_exists: Callable[[str], bool] = lambda group: True

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

    def forget_topic(self, topic: str) -> None:
        """Drops the labels of a deleted topic."""
        self.topics_in.pop(topic, None)
        self._forget(lambda key: key[0] == topic)

    def forget_group(self, group: str) -> None:
        """Drops the labels of a deleted group."""
        self._forget(lambda key: key[1] == group)

    def keep_only(self, topic_exists: Callable[[str], bool]) -> None:
        """Drops the labels of what is gone, as a request in flight may have counted after a deletion.

        Called before the page is rendered, on a worker thread.
        """
        for topic in list(self.topics_in):
            if topic != _OTHER and not topic_exists(topic):
                self.topics_in.pop(topic, None)
        self._forget(lambda key: key[0] != _OTHER and not topic_exists(key[0]))
        self._forget(lambda key: key[1] not in ("", _OTHER) and not self.group_exists(key[1]))

    def _forget(self, is_gone: Callable[[tuple[str, str]], bool]) -> None:
        # A copy: the event loop counts while a worker thread drops.
        for key in list(self.topics_out):
            if is_gone(key):
                self.topics_out.pop(key, None)

    def _new_in(self, topic: str) -> TopicIn:
        key = topic if len(self.topics_in) < MAX_LABEL_SETS else _OTHER
        return self.topics_in.setdefault(key, TopicIn())

    def _new_out(self, topic: str, group: str) -> TopicOut:
        if group and not self.group_exists(group):
            group = ""
        key = (topic, group) if len(self.topics_out) < MAX_LABEL_SETS else (_OTHER, _OTHER)
        return self.topics_out.setdefault(key, TopicOut())
