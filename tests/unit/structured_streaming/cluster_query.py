"""A query over brokers that are models: each can be away, and have a slave in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lakemq.client import Client
from lakemq.client.group_lease import GroupLease
from store_native.errors import InvalidRequest, Unavailable
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Bounds, MessageQueue
from structured_streaming.options import parse_read
from structured_streaming.source.cluster_run import ClusterRun, options_of
from structured_streaming.source.query_run import QueryRun
from tests.unit.structured_streaming.model_broker import ModelBroker

A0, B0, C0 = (MessageQueue("t0", f"broker-{name}", 0) for name in "abc")


class Broker(ModelBroker):
    """Topic t0 with one queue; ``away`` answers nothing, ``slave_end`` is what a slave has in its place."""

    def __init__(self, name: str, end: int, topic: str = "t0", epoch: int = 5) -> None:
        super().__init__()
        self.broker_name = name
        self.epoch_now = epoch
        self.away = False
        self.slave_end: int | None = None
        self.create(topic, 1)
        self.grow(end, topic)

    def grow(self, end: int, topic: str = "t0") -> None:
        self.held[topic].queues[0].high = end

    def epoch(self) -> int:
        if self.away:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"broker {self.broker_name}: no connection")
        return super().epoch()

    def bounds(self, topic: str) -> dict[int, Bounds]:
        found = super().bounds(topic)
        if self.slave_end is None:
            return found
        self.slave_answers += 1
        return {queue: Bounds(low, self.slave_end) for queue, (low, *_) in found.items()}


class Lease:
    """A query's lease at one broker, where another query may have the group already."""

    def __init__(self, name: str, query: Query) -> None:
        self.name = name
        self.query = query
        self.epoch = 0

    def acquire(self) -> None:
        self.query.asked_for_lease.append(self.name)
        if self.query.held[self.name].away:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"broker {self.name}: no connection")
        if self.name in self.query.refused_at:
            raise InvalidRequest("LEASE_CONFLICT", "another query has it")
        self.epoch = 1

    def check(self) -> int:
        return self.epoch


class Query:
    """A query over brokers a and b (and more that come), with a clock that a test moves."""

    answer_s = 60.0

    def __init__(self, *brokers: Broker, refused_at: Sequence[str] = (), **given: Any) -> None:
        self.asked_for_lease: list[str] = []
        self.refused_at = refused_at
        self.held = {broker.broker_name: broker for broker in brokers}
        self.now = 0.0
        self.never_answered: list[str] = []
        self.committed: dict[str, dict[tuple[str, int], int]] = {}
        options = {"endpoint": "http://a,http://b", "subscribe": "t0", "startingOffsets": "earliest"}
        self.chosen = parse_read({**options, "retryTimeoutMs": "1", **given}, streaming=True)
        self.run = self.again()

    def again(self) -> ClusterRun:
        """A run of the same query after a restart."""

        class Brokers:
            def brokers(brokers) -> dict[str, Broker]:
                return self.held

            def never_answered(brokers) -> list[str]:
                return self.never_answered

        def run_of(name: str) -> QueryRun:
            self.held[name].epoch()
            join_at = None if self.chosen.join_at_group is None else lambda: self.committed.get(name, {})
            lease = None if self.chosen.group is None else cast(GroupLease, Lease(name, self))
            return QueryRun(
                options_of(self.chosen), self.held[name], must_exist=False, join_at=join_at, lease=lease
            )

        return ClusterRun(
            self.chosen, cast(Client, Brokers()), run_of, clock=lambda: self.now, answer_s=self.answer_s
        )


def at(offsets: ClusterOffsets) -> dict[str, int]:
    return {queue.broker_name: position for queue, position in offsets.queues.items()}
