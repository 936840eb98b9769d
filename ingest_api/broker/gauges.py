"""What a broker holds at the moment: topics, groups, their lag, delayed messages, the store's own counters.

Owns what monitoring reads; what is counted as it happens is in metrics.py.

Invariants: nothing is kept but times of messages, each call looks at the store; a group has a lag only in
topics that exist.

Threads: a reading thread of the front door that shows it.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ingest_api.broker.admission import Admission
from store_native import Store
from store_native.errors import LakeMQError
from store_native.names import PERM_READ, PERM_READ_WRITE

_MAX_KNOWN_TIMES = 10_000


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What a group has not consumed of a topic.

    Attributes:
        messages: How many.
        latency_ms: Since the first of them was stored; 0 where there is none.
    """

    group: str
    topic: str
    messages: int
    latency_ms: int


class Gauges:
    """Looks at a store.

    Args:
        store: The store.
        admission: Says whether sends are taken.
        clock: Seconds since the epoch.
    """

    def __init__(self, store: Store, admission: Admission, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._admission = admission
        self._clock = clock
        self._known_times: dict[tuple[str, int, int], int] = {}
        self._topic_changes = -1

    def topics(self) -> set[str]:
        """Returns the names of all topics."""
        return {config["topic"] for config in json.loads(self._store.topics_json())}

    def has_topic(self, topic: str) -> bool:
        """Says whether a topic is there; knows of one made a moment ago, too."""
        return self._store.topic_json(topic) is not None

    def groups(self) -> set[str]:
        """Returns the names of all consumer groups."""
        return {config["group"] for config in json.loads(self._store.groups_json())}

    def lags(self) -> Iterator[GroupLag]:
        """Yields how far each group is behind in each topic that it committed offsets for."""
        for group in sorted(self.groups()):
            behind: dict[str, int] = defaultdict(int)
            oldest: dict[str, list[int]] = defaultdict(list)
            for topic, queue_id, offset in self._store.group_offsets(group):
                try:
                    low, high = self._store.queue_bounds(topic, queue_id)
                except LakeMQError:
                    continue  # the topic was deleted; its offsets stay until the group goes
                behind[topic] += max(0, high - max(low, offset))
                if high > max(low, offset):
                    oldest[topic] += self._stored_at(topic, queue_id, max(low, offset))
            for topic, messages in behind.items():
                yield GroupLag(group, topic, messages, self._since(oldest[topic]))

    def _since(self, stored_at: Iterable[int]) -> int:
        now = int(self._clock() * 1000)
        return max(0, now - min(stored_at, default=now))

    def _stored_at(self, topic: str, queue_id: int, offset: int) -> list[int]:
        """When one message was stored, or the first behind it that can be read; nothing if there is none.

        Remembered: the message is read as a whole for it, and a group that stands still is asked about again.
        """
        if self._topic_changes != self._store.topic_changes or len(self._known_times) > _MAX_KNOWN_TIMES:
            self._known_times = {}  # a position may be another message's
            self._topic_changes = self._store.topic_changes
        known = self._known_times.get((topic, queue_id, offset))
        if known is not None:
            return [known]
        try:
            found = self._store.read_json(topic, queue_id, offset, max_messages=1).messages
        except LakeMQError:
            return []  # the topic was deleted since its queue was looked at
        times = [int(message["store_timestamp"]) for message in json.loads(found)]
        self._known_times.update(((topic, queue_id, offset), at) for at in times)
        return times

    def delayed(self) -> Iterator[tuple[int, int]]:
        """Yields (level, messages that wait for their delivery)."""
        for level, done, end in self._store.delay_progress():
            yield level, end - done

    def store_counters(self) -> Mapping[str, float]:
        """Returns what the store counts, by its own names."""
        return self._store.stats()

    def permission(self) -> int:
        """Returns 6 where the broker takes messages and gives them out, 4 where it only gives them out."""
        admission = self._admission
        refuses = admission.disk_full or self._store.poisoned or admission.slave_of is not None
        return PERM_READ if refuses else PERM_READ_WRITE
