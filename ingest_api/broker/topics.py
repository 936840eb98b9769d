"""Topics: what there are, creating, changing and deleting them.

Owns a topic's path from a front door's request to its record in the store.

Invariants: a change is reported as settled only when its record is flushed and every reader sees it; the name
server's tables and the metrics follow.

Threads: the event loop; the store's part runs on the read pool.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from ha_replicator.nameserver import QueueData, RouteTables
from ingest_api.broker.deleted_lists import DeletedLists
from ingest_api.broker.mastership import CheckMaster
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.ordered_topics import check_nothing_between, checked_change
from ingest_api.broker.thread_pools import ReadPool
from store_native import Store
from store_native.errors import InvalidRequest
from store_native.order_conf import OrderConf

Settle = Callable[[int], Awaitable[bool]]
"""Waits for a change that ends at an offset; False after the time-out."""


class Change(NamedTuple):
    """A change that is in the log.

    Attributes:
        is_new: It made something.
        settled: It is flushed and seen; otherwise it will be.
    """

    is_new: bool
    settled: bool


class TopicService:
    """Administers topics.

    Args:
        store: Keeps them.
        reads: Runs what may touch the disk.
        settle: Waits for a change.
        tables: The name server's, which name this broker's topics.
        metrics: Forgets labels of what is gone.
        broker_name: This broker's, in the tables.
        deleted_lists: Of ordered topics that are gone.
        on_deleted: Called with a topic that is gone.
        check_master: Refuses changes where this is a slave.
        now_ms: Epoch milliseconds.
    """

    def __init__(
        self,
        store: Store,
        reads: ReadPool,
        settle: Settle,
        tables: RouteTables,
        metrics: BrokerMetrics,
        broker_name: str,
        deleted_lists: DeletedLists,
        on_deleted: Callable[[str], None],
        check_master: CheckMaster,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._reads = reads
        self._settle = settle
        self._tables = tables
        self._metrics = metrics
        self._broker_name = broker_name
        self._deleted_lists = deleted_lists
        self._on_deleted = on_deleted
        self._check_master = check_master
        self._now_ms = now_ms
        self._changing = threading.Lock()  # what a change is checked against stays until it is made

    async def page(self, after: str, limit: int) -> bytes:
        """Returns topics behind ``after`` by name, as a JSON array of at most ``limit``."""
        return await self._reads.run(self._store.topics_json, after, limit)

    def get(self, topic: str) -> bytes:
        """Returns a topic's configuration as JSON.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST.
        """
        config = self._store.topic_json(topic)
        if config is None:
            raise InvalidRequest(
                "TOPIC_NOT_EXIST", f"topic[{topic}] not exist, apply first please!", topic=topic
            )
        return bytes(config)

    async def put(
        self,
        topic: str,
        *,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        perm: int | None = None,
        attributes: dict[str, str] | None = None,
        order_conf: OrderConf | None = None,
        order_conf_before: int | None = None,
        force: bool = False,
    ) -> Change:
        """Creates a topic, or changes what is given of it.

        Args:
            order_conf: The list of brokers that the topic is ordered over; see ordered_topics.py.
            order_conf_before: The version of the newest list that who gives it had heard of, 0 for none.
            force: Allows fewer read than write queues.

        Raises:
            InvalidRequest: TOPIC_ILLEGAL, ARGUMENT_ILLEGAL, ...
            Unavailable: NOT_MASTER.
        """
        self._check_master()

        def put() -> tuple[bool, int]:
            change = {
                "read_queue_nums": read_queue_nums,
                "write_queue_nums": write_queue_nums,
                "perm": perm,
                "attributes": attributes,
            }
            with self._changing:
                config = self._store.topic_json(topic)
                known = None if config is None else json.loads(config)
                if order_conf is not None and order_conf_before is not None:
                    check_nothing_between(topic, known, order_conf, order_conf_before)
                if known is None and order_conf is not None:
                    self._deleted_lists.check(topic, order_conf)
                checked = checked_change(topic, self._broker_name, known, change, order_conf, self._now_ms())
                return config is None, self._store.put_topic(topic, force=force, **checked)

        is_new, end_offset = await self._reads.run(put)
        settled = await self._settle(end_offset)
        if settled:
            self.refresh(topic)
        return Change(is_new, settled)

    async def delete(self, topic: str) -> Change:
        """Deletes a topic; its messages go with retention.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST, NO_PERMISSION.
            Unavailable: NOT_MASTER.
        """
        self._check_master()

        def delete() -> int:
            with self._changing:
                conf = OrderConf.of_attributes(json.loads(self.get(topic))["attributes"])
                if conf is not None:
                    self._deleted_lists.note(topic, conf)
                return self._store.delete_topic(topic)

        settled = await self._settle(await self._reads.run(delete))
        if settled:
            self.refresh(topic)
            self._metrics.forget_topic(topic)
            self._on_deleted(topic)
        return Change(False, settled)

    def refresh(self, topic: str) -> None:
        """Brings one topic up to date in the name server's tables.

        Sends create topics too, so the tables are refreshed when somebody asks, not when it happens.
        """
        config = self._store.topic_json(topic)
        queues = None if config is None else queue_data(json.loads(config))
        self._tables.put_topic(self._broker_name, topic, queues)


def queue_data(config: Mapping[str, Any]) -> QueueData:
    """Reads from a topic's configuration what its route says."""
    return QueueData(
        int(config["read_queue_nums"]),
        int(config["write_queue_nums"]),
        int(config["perm"]),
        OrderConf.of_attributes(config["attributes"]),
    )
