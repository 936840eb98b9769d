"""Prometheus text: valid, with RocketMQ's names."""

from __future__ import annotations

from ingest_api.broker.metrics import MAX_LABEL_SETS, BrokerMetrics, Histogram
from ingest_api.http.prometheus import Exposition, add_broker, add_store


def test_labels_are_escaped() -> None:
    page = Exposition({"node_id": 'a"b'})
    page.gauge("x", "text", [({"topic": "back\\slash\nline"}, 1.5)])
    assert page.text() == (
        b"# HELP lakemq_x text\n# TYPE lakemq_x gauge\n"
        b'lakemq_x{node_id="a\\"b",topic="back\\\\slash\\nline"} 1.5\n'
    )


def test_buckets_are_cumulative() -> None:
    histogram = Histogram((1, 10))
    for value in (0.5, 1, 5, 100):
        histogram.observe(value)
    page = Exposition({})
    page.histogram("x", "text", [({}, histogram)])
    assert page.text().decode().splitlines()[2:] == [
        'lakemq_x_bucket{le="1"} 2',
        'lakemq_x_bucket{le="10"} 3',
        'lakemq_x_bucket{le="+Inf"} 4',
        "lakemq_x_sum{} 106.5",
        "lakemq_x_count{} 4",
    ]


def test_sends_and_pulls_are_counted_by_topic() -> None:
    metrics = BrokerMetrics()
    metrics.sent("t", 1, 100)
    metrics.sent("t", 4, 400)
    metrics.pulled("t", "g", 2, 50)
    page = Exposition({})
    add_broker(page, metrics)
    lines = page.text().decode().splitlines()
    assert 'lakemq_messages_in_total{topic="t",message_type="normal"} 5' in lines
    assert 'lakemq_throughput_in_total{topic="t",message_type="normal"} 500' in lines
    assert (
        'lakemq_messages_out_total{topic="t",consumer_group="g",is_retry="false",is_system="false"} 2'
        in lines
    )
    assert 'lakemq_message_size_count{message_type="normal"} 5' in lines


def test_label_sets_are_bounded() -> None:
    metrics = BrokerMetrics()
    for n in range(MAX_LABEL_SETS + 10):
        metrics.pulled(f"t{n}", "g", 1, 1)
    assert len(metrics.topics_out) == MAX_LABEL_SETS + 1
    assert metrics.topics_out["_other", "_other"].messages == 10


def test_the_stores_counters_keep_their_kind() -> None:
    page = Exposition({})
    add_store(page, {"flush_total": 3, "flush_behind_bytes": 5})
    text = page.text().decode()
    assert "# TYPE lakemq_flush_total counter" in text
    assert 'lakemq_storage_flush_behind_bytes{storage_type="local",storage_medium="disk"} 5' in text
