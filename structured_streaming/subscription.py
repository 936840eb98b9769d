"""Which topics and queues a query reads.

Owns the three ways to say it (subscribe, subscribePattern, assign) and the rule that system topics never come
through a pattern. Pure values, parsed once by options.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from store_native import SYSTEM_TOPICS
from store_native.names import is_group_topic, is_system_prefixed
from structured_streaming.offsets import MessageQueue


@dataclass(frozen=True)
class Subscription:
    """Topics by name, by pattern, or single queues; exactly one of the three is set.

    Attributes:
        topics: Names from ``subscribe``.
        pattern: A regular expression from ``subscribePattern`` that a whole name must match.
        queues: Topic to queue ids from ``assign``.
    """

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    queues: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, queues: Iterable[MessageQueue]) -> Subscription:
        """Returns the subscription of single queues, of whatever broker."""
        found: dict[str, set[int]] = {}
        for queue in queues:
            found.setdefault(queue.topic, set()).add(queue.queue_id)
        return cls(queues={topic: frozenset(queue_ids) for topic, queue_ids in found.items()})

    def as_option(self) -> tuple[str, str]:
        """Returns the option that says it, name and value; not of single queues."""
        assert not self.queues, "single queues are assigned"
        if self.pattern is not None:
            return "subscribePattern", self.pattern
        return "subscribe", ",".join(self.named_topics())

    def named_topics(self) -> list[str]:
        """Returns the topics asked for by name; empty for a pattern."""
        return sorted(self.topics or self.queues)

    def matching(self, existing: Iterable[str]) -> list[str]:
        """Returns the existing topics a pattern takes, without the system's own."""
        assert self.pattern is not None
        matches = re.compile(self.pattern).fullmatch
        return sorted(topic for topic in existing if self._may_match(topic) and matches(topic))

    def covers(self, queue: MessageQueue) -> bool:
        """Says whether a queue belongs to the subscription."""
        if self.pattern is not None:
            return self._may_match(queue.topic) and re.fullmatch(self.pattern, queue.topic) is not None
        if self.queues:
            return queue.queue_id in self.queues.get(queue.topic, ())
        return queue.topic in self.topics

    def _may_match(self, topic: str) -> bool:
        """A pattern such as ``.*`` must not bring in a group's retry topic unless it asks for it."""
        if topic in SYSTEM_TOPICS or is_system_prefixed(topic):
            return False
        return not is_group_topic(topic) or (self.pattern or "").startswith("%")
