"""The brokers of a cluster as a job asks them, in plain Python: each topic has one queue at each."""

from __future__ import annotations

from typing import cast

from lakemq.client import Client
from lakemq.client.results import QueueBounds, QueueEpoch, TopicConfig
from store_native.errors import Unavailable, from_code


class ModelCluster:
    """Who is there, who answers, and how far each queue is.

    Args:
        names: The brokers' names.
        topics: Topics that each has.
        several: Whether the endpoint is a name server's.
    """

    def __init__(self, *names: str, topics: tuple[str, ...] = ("t",), several: bool = True) -> None:
        self.names = list(names)
        self.topics = topics
        self.several = several
        self.epochs: tuple[tuple[int, int] | tuple[int, int, bool], ...] = ()
        self.topic_ids: dict[str, str] = {}
        self.gone: tuple[str, ...] = ()  # deleted since they were listed
        self.away: set[str] = set()
        self.never: list[str] = []
        self.ends = dict.fromkeys(names, 10)
        self.delayed: dict[str, int] = {}

    def client(self) -> Client:
        """The client of the cluster."""
        return cast(Client, _Cluster(self))


class _Broker:
    def __init__(self, cluster: ModelCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    def cluster(self) -> dict[str, str]:
        return {"broker_name": self._name}

    def topic(self, topic: str) -> TopicConfig:
        self._answer()
        return TopicConfig(topic, self._cluster.topic_ids.get(topic, ""), 1, 1, 6)

    def queues(self, topic: str) -> list[QueueBounds]:
        self._answer()
        if topic not in self._cluster.topics:
            raise from_code("TOPIC_NOT_EXIST", topic)
        end = self._cluster.ends[self._name]
        return [QueueBounds(0, 0, end, end, epochs=tuple(QueueEpoch(*at) for at in self._cluster.epochs))]

    def topics(self) -> list[TopicConfig]:
        self._answer()
        listed = [*self._cluster.topics, *self._cluster.gone]
        return [TopicConfig(topic, "", 1, 1, 6) for topic in listed]

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        self._answer()
        return {}

    def metrics(self) -> str:
        self._answer()
        return f'lakemq_timing_messages{{level="18"}} {self._cluster.delayed.get(self._name, 0)}\n'

    def _answer(self) -> None:
        if self._name in self._cluster.away:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"broker {self._name}: no connection")


class _Cluster(_Broker):
    def __init__(self, cluster: ModelCluster) -> None:
        super().__init__(cluster, cluster.names[0])

    def is_cluster(self) -> bool:
        return self._cluster.several

    def never_answered(self) -> list[str]:
        return self._cluster.never

    def brokers(self) -> dict[str, _Broker]:
        return {name: self.broker(name) for name in self._cluster.names}

    def broker(self, name: str) -> _Broker:
        return _Broker(self._cluster, name)
