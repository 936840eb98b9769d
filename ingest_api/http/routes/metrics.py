"""/metrics: Prometheus text."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.prometheus import CONTENT_TYPE, Exposition, Labels, add_broker, add_process, add_store
from ingest_api.http.routes.schemas import PROBLEMS
from store_native import Store
from store_native.errors import LakeMQError
from store_native.names import is_retry_topic

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}
}


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = APIRouter(tags=["metrics"], responses=PROBLEMS)

    @routes.get("/metrics", response_class=Response, responses={**PROBLEMS, **_TEXT})
    async def get_metrics() -> Response:
        """Returns all metrics: RocketMQ 5's names and labels under lakemq_."""
        return Response(await broker.reads.run(render, broker), media_type=CONTENT_TYPE)

    return routes


def render(broker: Broker) -> bytes:
    """Renders the page; runs on a worker thread."""
    store, admission = broker.store, broker.admission
    page = Exposition(
        {"cluster": broker.settings.cluster, "node_type": "broker", "node_id": broker.settings.broker_name}
    )
    topics = {config["topic"] for config in json.loads(store.topics_json())}
    groups = {config["group"] for config in json.loads(store.groups_json())}
    # A topic made a moment ago may not be in the list yet.
    broker.metrics.keep_only(lambda topic: topic in topics or store.topic_json(topic) is not None)
    add_broker(page, broker.metrics)
    page.gauge(
        "processor_watermark",
        "Requests inside, by processor.",
        [
            ({"processor": "send"}, admission.inflight),
            ({"processor": "bulk_send"}, broker.bulk.queued),
            ({"processor": "ack_wait"}, broker.flush_waiter.waiting),
            ({"processor": "pull_hold"}, broker.metrics.held_pulls),
        ],
    )
    page.gauge("parsing_bytes", "Bytes of large bodies held in memory.", [({}, admission.parsing_bytes)])
    page.gauge(
        "broker_permission",
        "6 reads and writes, 4 only reads.",
        [({}, 4 if admission.disk_full or store.poisoned else 6)],
    )
    page.gauge("topic_number", "Topics.", [({}, len(topics))])
    page.gauge("consumer_group_number", "Consumer groups.", [({}, len(groups))])
    page.gauge(
        "consumer_lag_messages",
        "Messages a group has not consumed of a topic it committed offsets for.",
        list(_lag(store, groups)),
    )
    page.gauge(
        "timing_messages",
        "Delayed messages waiting, by level.",
        [({"level": str(level)}, end - done) for level, done, end in store.delay_progress()],
    )
    add_store(page, store.stats())
    add_process(page)
    return page.text()


def _lag(store: Store, groups: Iterable[str]) -> Iterator[tuple[Labels, float]]:
    for group in sorted(groups):
        behind: dict[str, int] = defaultdict(int)
        for topic, queue_id, offset in store.group_offsets(group):
            try:
                low, high = store.queue_bounds(topic, queue_id)
            except LakeMQError:
                continue  # the topic was deleted; its offsets stay until the group goes
            behind[topic] += max(0, high - max(low, offset))
        for topic, messages in behind.items():
            yield (
                {
                    "consumer_group": group,
                    "topic": topic,
                    "is_retry": str(is_retry_topic(topic)).lower(),
                },
                messages,
            )
