"""Delayed messages under load: each arrives once, in the order of its level, and not before its time.

Owns what was sent with which delay, and the judgement of what arrived.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lakemq.client import LakeMQError, ReceivedMessage
from tests.cluster.chaos.load import Job, Reader
from tests.cluster.chaos.node import Node
from tests.support.checker import Found, identity
from tests.support.waiting import wait_until

TOPIC: Final = "chaos-delayed"
LEVELS: Final = (1, 2)
"""Of so many seconds each (``delay_levels`` in broker.py); a level's messages go to a queue of their own."""
CLOCKS_DIFFER_S: Final = 0.05
ALL_IN_S: Final = 30.0


@dataclass(slots=True)
class Delayed:
    """A message that was sent.

    Attributes:
        began: when it was sent first, in epoch seconds.
        key: its Idempotency-Key; with one it is sent again when no answer came.
        acknowledged: its answer was SEND_OK.
    """

    number: int
    level: int
    began: float
    key: str | None
    acknowledged: bool = False

    @property
    def due(self) -> float:
        return self.began + self.level


class DelayedMessages:
    """One sender that waits for each answer, and a reader at the master."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"{seed} delayed")
        self._sent: dict[str, Delayed] = {}
        self._open: Delayed | None = None
        self._readers: list[Reader] = []
        self._seen: dict[Found, float] = {}

    def prepare(self, master: Node) -> None:
        with master.client() as client:
            client.put_topic(TOPIC, read_queue_nums=len(LEVELS), write_queue_nums=len(LEVELS))

    def jobs(self, master: Node, slaves: Sequence[Node]) -> list[Job]:
        self._readers = [Reader({TOPIC: len(LEVELS)})]
        return [partial(self._send, master), partial(self._readers[0].run, master)]

    def problems(self, master: Node) -> list[str]:
        found = list(_arrived(master))
        for reader in self._readers:
            self._seen = {**reader.seen, **self._seen}
        self._readers.clear()
        return [*self._wrong(found), *self._wrong_for_readers(found)]

    def problems_at_end(self, master: Node) -> list[str]:
        """Waits for what is under way: what was acknowledged has to come."""
        missing: set[str] = set()

        def is_complete() -> bool:
            arrived = {identity(message.body) for message in _arrived(master)}
            missing.clear()
            missing.update(id_ for id_, one in self._sent.items() if one.acknowledged and id_ not in arrived)
            return not missing

        try:
            wait_until(is_complete, ALL_IN_S)
        except AssertionError:
            return [
                f"{len(missing)} delayed messages were acknowledged and never came: {sorted(missing)[:5]}"
            ]
        return self.problems(master)

    def _send(self, master: Node, stop: threading.Event) -> None:
        with master.client() as client:
            while not stop.is_set():
                one = self._open or self._next()
                self._open = one if one.key else None
                try:
                    result = client.send(
                        TOPIC,
                        f"d{one.number} {'x' * (0, 50, 2_000)[one.number % 3]}",
                        queue_id=one.level - 1,
                        delay_level=one.level,
                        idempotency_key=one.key,
                    )
                except LakeMQError:
                    stop.wait(0.02)
                    continue
                self._open = None
                one.acknowledged = result.status == "SEND_OK"
                stop.wait(0.005)

    def _next(self) -> Delayed:
        number = len(self._sent)
        key = f"delayed-{number}" if self._random.random() < 0.5 else None
        one = Delayed(number, self._random.choice(LEVELS), time.time(), key)
        self._sent[f"d{number}"] = one
        return one

    def _wrong(self, found: Sequence[ReceivedMessage]) -> list[str]:
        problems: list[str] = []
        times = Counter(identity(message.body) for message in found)
        problems += [f"{id_} came {count} times" for id_, count in times.items() if count > 1]
        newest: dict[int, int] = {}
        for message in found:
            id_ = identity(message.body)
            one = self._sent.get(id_)
            if one is None:
                problems.append(f"{id_} was never sent")
                continue
            if message.store_timestamp / 1000 < one.due - CLOCKS_DIFFER_S:
                problems.append(f"{id_} came {one.due - message.store_timestamp / 1000:.3f} s early")
            if one.number < newest.get(message.queue_id, -1):
                problems.append(f"{id_} came behind d{newest[message.queue_id]}")
            newest[message.queue_id] = one.number
        return problems[:5]

    def _wrong_for_readers(self, found: Sequence[ReceivedMessage]) -> list[str]:
        there = {Found(TOPIC, m.queue_id, m.queue_offset, identity(m.body)) for m in found}
        problems = [
            f"{one.id} was read at {one.queue_offset} and is gone" for one in self._seen.keys() - there
        ]
        for one, at in self._seen.items():
            sent = self._sent.get(one.id)
            if sent is not None and at < sent.due - CLOCKS_DIFFER_S:
                problems.append(f"{one.id} was read {sent.due - at:.3f} s early")
        return problems[:5]


def _arrived(master: Node) -> Iterable[ReceivedMessage]:
    """Yields what the topic holds, queue by queue in their order."""
    with master.client() as client:
        for level in LEVELS:
            offset = 0
            while messages := client.pull(TOPIC, level - 1, offset, max=1000).messages:
                yield from messages
                offset = messages[-1].queue_offset + 1
