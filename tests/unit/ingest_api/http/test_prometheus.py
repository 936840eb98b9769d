"""Prometheus text: valid, with RocketMQ's names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from ingest_api.broker.broker import Broker
from ingest_api.broker.metrics import MAX_LABEL_SETS, BrokerMetrics, Histogram
from ingest_api.broker.settings import BrokerSettings, StoreSettings
from ingest_api.http.prometheus import (
    Families,
    Family,
    metrics_registry,
    request_families,
    store_families,
)
from tests.support.metrics import Samples


class Given(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Family]:
        return self._families


def rendered(families: Iterable[Family]) -> str:
    registry = CollectorRegistry()
    registry.register(Given(families))
    return generate_latest(registry).decode()


def test_labels_are_escaped() -> None:
    families = Families({"node_id": 'a"b'})
    text = rendered([families.gauge("x", "text", [({"topic": "back\\slash\nline"}, 1.5)])])
    assert text == (
        "# HELP lakemq_x text\n# TYPE lakemq_x gauge\n"
        'lakemq_x{node_id="a\\"b",topic="back\\\\slash\\nline"} 1.5\n'
    )


def test_buckets_are_cumulative() -> None:
    histogram = Histogram((1, 10))
    for value in (0.5, 1, 5, 100):
        histogram.observe(value)
    text = rendered([Families({}).histogram("x", "text", [({}, histogram)])])
    assert text.splitlines()[2:] == [
        'lakemq_x_bucket{le="1"} 2.0',
        'lakemq_x_bucket{le="10"} 3.0',
        'lakemq_x_bucket{le="+Inf"} 4.0',
        "lakemq_x_count 4.0",
        "lakemq_x_sum 106.5",
    ]


def test_sends_and_pulls_are_counted_by_topic() -> None:
    metrics = BrokerMetrics()
    metrics.sent("t", 1, 100)
    metrics.sent("t", 4, 400)
    metrics.pulled("t", "g", 2, 50)
    page = Samples(rendered(request_families(Families({"node_id": "n"}), metrics)))
    assert page.value("lakemq_messages_in_total", node_id="n", topic="t", message_type="normal") == 5
    assert page.value("lakemq_throughput_in_total", node_id="n", topic="t", message_type="normal") == 500
    out = {"node_id": "n", "topic": "t", "consumer_group": "g", "is_retry": "false", "is_system": "false"}
    assert page.value("lakemq_messages_out_total", **out) == 2
    assert page.value("lakemq_throughput_out_total", **out) == 50
    assert page.value("lakemq_message_size_count", node_id="n", message_type="normal") == 5


def test_label_sets_are_bounded() -> None:
    metrics = BrokerMetrics()
    for n in range(MAX_LABEL_SETS + 10):
        metrics.pulled(f"t{n}", "g", 1, 1)
    assert len(metrics.topics_out) == MAX_LABEL_SETS + 1
    assert metrics.topics_out["_other", "_other"].messages == 10


def test_the_stores_counters_keep_their_kind() -> None:
    text = rendered(store_families(Families({}), {"flush_total": 3, "flush_behind_bytes": 5}))
    assert "# TYPE lakemq_flush_total counter" in text
    assert (
        Samples(text).value("lakemq_storage_flush_behind_bytes", storage_type="local", storage_medium="disk")
        == 5
    )


def test_two_brokers_of_a_process_have_registries_of_their_own(tmp_path: Path) -> None:
    async def pages() -> list[Samples]:
        brokers = [
            Broker(
                BrokerSettings(
                    broker_name=name,
                    store=StoreSettings(str(tmp_path / name), index_slots=10, index_entries=20),
                ),
                "http://127.0.0.1:1",
                ("127.0.0.1", 1),
            )
            for name in ("one", "two")
        ]
        brokers[0].metrics.refused("MESSAGE_ILLEGAL")
        found = [Samples(generate_latest(metrics_registry(broker)).decode()) for broker in brokers]
        for broker in brokers:
            await broker.stop()
        return found

    one, two = asyncio.run(pages())
    node = {"cluster": "DefaultCluster", "node_type": "broker"}
    assert one.value("lakemq_errors_total", **node, node_id="one", code="MESSAGE_ILLEGAL") == 1
    assert not two.named("lakemq_errors_total")
    assert one.value("process_cpu_seconds_total") > 0
    assert one.value("process_resident_memory_bytes") > 1 << 20
    assert one.value("process_open_fds") < one.value("process_max_fds")
