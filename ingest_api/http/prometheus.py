"""What /metrics shows: the broker's counters as Prometheus metrics.

Owns metric names, types and labels; RocketMQ 5's (BrokerMetricsConstant, DefaultStoreMetricsConstant) with
the prefix ``lakemq_`` instead of ``rocketmq_``. prometheus_client renders.

Invariants: nothing is counted here, only read; the labels are those of topics and groups that exist. A
registry belongs to one broker, never to the process.

Threads: a reading thread collects while the event loop goes on counting, so what is iterated is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from ha_replicator.identity import BrokerRole
from ingest_api.broker.broker import Broker
from ingest_api.broker.gauges import GroupLag
from ingest_api.broker.groups.handled_batches import GroupCounts
from ingest_api.broker.metrics import BrokerMetrics, Histogram
from ingest_api.broker.replication_status import ReplicationStatus
from store_native.names import is_retry_topic, is_system_prefixed

Labels = Mapping[str, str]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_STORE_NAMES = {
    "flush_behind_bytes": "storage_flush_behind_bytes",
    "dispatch_behind_bytes": "storage_dispatch_behind_bytes",
    # The services count these two with topic labels.
    "messages_in_total": "store_messages_in_total",
    "bytes_in_total": "store_bytes_in_total",
}


def metrics_registry(broker: Broker) -> CollectorRegistry:
    """Builds the registry of a broker: its own metrics and the process's."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(broker))
    ProcessCollector(registry=registry)
    return registry


class Families:
    """Builds metric families whose samples all carry the broker's labels.

    Args:
        labels: Cluster, node_type, node_id.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = dict(labels)

    def gauge(self, name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> GaugeMetricFamily:
        """Builds a metric that goes up and down."""
        family = GaugeMetricFamily(f"lakemq_{name}", text)
        for labels, value in samples:
            family.add_sample(family.name, {**self._labels, **labels}, value)
        return family

    def counter(self, name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> CounterMetricFamily:
        """Builds a metric that only grows; its name ends with ``_total``."""
        family = CounterMetricFamily(f"lakemq_{name}", text)
        for labels, value in samples:
            family.add_sample(f"lakemq_{name}", {**self._labels, **labels}, value)
        return family

    def histogram(
        self, name: str, text: str, samples: Iterable[tuple[Labels, Histogram]]
    ) -> HistogramMetricFamily:
        """Builds cumulative buckets, sum and count."""
        family = HistogramMetricFamily(f"lakemq_{name}", text)
        for labels, histogram in samples:
            own = {**self._labels, **labels}
            below = 0
            for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
                below += count
                family.add_sample(f"{family.name}_bucket", {**own, "le": str(bound)}, below)
            family.add_sample(f"{family.name}_count", own, below)
            family.add_sample(f"{family.name}_sum", own, histogram.total)
        return family


class BrokerCollector(Collector):
    """Reads a broker's counters; called by its registry for each page, on a reading thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._families = Families(
            {
                "cluster": broker.settings.cluster,
                "node_type": "broker",
                "node_id": broker.settings.broker_name,
            }
        )

    def collect(self) -> Iterator[Family]:
        """Yields every metric of the broker."""
        gauges, metrics, families = self._broker.gauges, self._broker.metrics, self._families
        topics = gauges.topics()
        lags = list(gauges.lags())
        # A topic made a moment ago may not be in the list yet.
        metrics.keep_only(lambda topic: topic in topics or gauges.has_topic(topic))
        yield from request_families(families, metrics)
        yield from self._state()
        yield families.gauge("topic_number", "Topics.", [({}, len(topics))])
        yield families.gauge("consumer_group_number", "Consumer groups.", [({}, len(gauges.groups()))])
        yield families.gauge(
            "consumer_lag_messages",
            "Messages a group has not consumed of a topic it committed offsets for.",
            ((_lag_labels(lag), lag.messages) for lag in lags),
        )
        yield families.gauge(
            "consumer_lag_latency",
            "Milliseconds since the first message was stored that a group has not consumed of a topic.",
            ((_lag_labels(lag), lag.latency_ms) for lag in lags),
        )
        yield from group_families(families, self._broker.handled_batches.by_group())
        yield families.gauge(
            "timing_messages",
            "Delayed messages waiting, by level.",
            (({"level": str(level)}, messages) for level, messages in gauges.delayed()),
        )
        yield from store_families(families, gauges.store_counters())
        yield from replication_families(families, self._broker.replication.status())

    def _state(self) -> Iterator[Family]:
        broker, admission = self._broker, self._broker.admission
        yield self._families.gauge(
            "processor_watermark",
            "Requests inside, by processor.",
            [
                ({"processor": "send"}, admission.inflight),
                ({"processor": "bulk_send"}, broker.bulk.queued),
                ({"processor": "flush_wait"}, broker.flush_waiter.waiting),
                ({"processor": "pull_hold"}, broker.metrics.held_pulls),
            ],
        )
        yield self._families.gauge(
            "parsing_bytes", "Bytes of large bodies held in memory.", [({}, admission.parsing_bytes)]
        )
        yield self._families.gauge(
            "broker_permission",
            "6 reads and writes, 4 only reads.",
            [({}, broker.gauges.permission())],
        )


def request_families(families: Families, metrics: BrokerMetrics) -> Iterator[Family]:
    """Yields what the services count of requests."""
    topics_in, topics_out = dict(metrics.topics_in), dict(metrics.topics_out)
    kind = {"message_type": "normal"}
    yield families.counter(
        "messages_in_total",
        "Messages stored for producers.",
        (({"topic": topic, **kind}, c.messages) for topic, c in topics_in.items()),
    )
    yield families.counter(
        "throughput_in_total",
        "Bytes of the request bodies stored for producers.",
        (({"topic": topic, **kind}, c.bytes) for topic, c in topics_in.items()),
    )
    out = [(_out_labels(*key), counted) for key, counted in topics_out.items()]
    yield families.counter(
        "messages_out_total", "Messages handed out to pulls.", ((labels, c.messages) for labels, c in out)
    )
    yield families.counter(
        "throughput_out_total", "Bytes handed out to pulls.", ((labels, c.bytes) for labels, c in out)
    )
    yield families.histogram(
        "message_size", "Bytes of a message; a batch counts with its mean.", [(kind, metrics.message_size)]
    )
    yield families.histogram(
        "rpc_latency",
        "Milliseconds from the request's head to its answer; bulk_send has bodies parsed off the event loop.",
        (({"protocol_type": "http", "request_code": name}, h) for name, h in metrics.latency_ms.items()),
    )
    yield families.counter(
        "errors_total", "Refusals by code.", (({"code": c}, n) for c, n in dict(metrics.errors).items())
    )
    yield families.counter(
        "flow_control_total",
        "Sends turned away by flow control, by the place that did.",
        (({"reason": r}, n) for r, n in dict(metrics.refusals).items()),
    )
    yield families.counter(
        "send_status_total",
        "Sends stored less safely than asked.",
        (({"status": s}, n) for s, n in dict(metrics.send_status).items()),
    )
    yield families.counter(
        "duplicate_sends_total", "Repeats recognised by Idempotency-Key.", [({}, metrics.duplicates)]
    )


def group_families(families: Families, counts: Mapping[str, GroupCounts]) -> Iterator[Family]:
    """Yields what the jobs of groups said of their batches."""
    by_group = [({"consumer_group": group}, counted) for group, counted in sorted(counts.items())]
    yield families.counter(
        "group_messages_total",
        "Messages that a group's job has handled, by verdict.",
        (
            ({**labels, "verdict": verdict}, messages)
            for labels, counted in by_group
            for verdict, messages in dict(counted.messages).items()
        ),
    )
    yield families.histogram(
        "group_batch_seconds",
        "Seconds from a batch's plan to its report.",
        ((labels, counted.seconds) for labels, counted in by_group),
    )
    yield families.gauge(
        "group_last_batch_timestamp_seconds",
        "When a group's job last told of a batch, seconds since the epoch.",
        ((labels, counted.at) for labels, counted in by_group),
    )


def replication_families(families: Families, status: ReplicationStatus) -> Iterator[Family]:
    """Yields what the broker is to the others of its name."""
    yield families.gauge(
        "replication_role",
        "1 for the role this broker has.",
        (({"role": role.value}, float(role.value == status.role)) for role in BrokerRole),
    )
    yield families.gauge("replication_epoch", "The highest epoch heard of.", [({}, status.epoch)])
    yield families.gauge(
        "replication_in_reach",
        "1 while enough slaves can have a message soon.",
        [({}, float(status.in_reach))],
    )
    yield families.gauge(
        "replication_following", "1 while a slave follows its master.", [({}, float(status.following))]
    )
    yield families.gauge(
        "replication_log_offset_bytes",
        "How far the log is appended, flushed and confirmed.",
        (({"mark": mark}, getattr(status, mark)) for mark in ("appended", "flushed", "confirmed")),
    )
    if status.lag_bytes is not None:
        yield families.gauge(
            "replication_lag_bytes",
            "What this slave lacks of its master's log, as far as it heard of that.",
            [({}, status.lag_bytes)],
        )
    slaves = [({"broker_id": str(slave.broker_id)}, slave) for slave in status.slaves]
    yield families.gauge(
        "replication_slave_acked_offset_bytes",
        "A slave that follows has reported the log up to there.",
        ((labels, slave.acked) for labels, slave in slaves),
    )
    yield families.gauge(
        "replication_slave_lag_bytes",
        "What a slave that follows has not reported yet.",
        ((labels, slave.lag_bytes) for labels, slave in slaves),
    )
    yield families.gauge(
        "replication_slave_lag_seconds",
        "Since the first message of that was stored.",
        ((labels, slave.lag_s) for labels, slave in slaves if slave.lag_s is not None),
    )
    yield families.gauge(
        "replication_slave_bytes_per_second",
        "What a slave that follows reported in the last 10 s.",
        ((labels, slave.bytes_per_s) for labels, slave in slaves),
    )
    yield families.gauge(
        "replication_slave_silent_seconds",
        "Since the last report of a slave that follows.",
        ((labels, slave.silent_s) for labels, slave in slaves),
    )


def store_families(families: Families, stats: Mapping[str, float]) -> Iterator[Family]:
    """Yields what the store counts, under its own names except where RocketMQ has one."""
    storage = {"storage_type": "local", "storage_medium": "disk"}
    for name, value in sorted(stats.items()):
        shown = _STORE_NAMES.get(name, name)
        labels = storage if shown.startswith("storage_") else {}
        build = families.counter if name.endswith("_total") else families.gauge
        yield build(shown, f"The store's {name}.", [(labels, value)])


def _lag_labels(lag: GroupLag) -> Labels:
    return {
        "consumer_group": lag.group,
        "topic": lag.topic,
        "is_retry": str(is_retry_topic(lag.topic)).lower(),
    }


def _out_labels(topic: str, group: str) -> dict[str, str]:
    return {
        "topic": topic,
        "consumer_group": group,
        "is_retry": str(is_retry_topic(topic)).lower(),
        "is_system": str(is_system_prefixed(topic)).lower(),
    }
