"""Renders /metrics: Prometheus text, version 0.0.4.

Owns metric names, types and labels; RocketMQ 5's (BrokerMetricsConstant, DefaultStoreMetricsConstant) with
the prefix ``lakemq_`` instead of ``rocketmq_``.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path

from ingest_api.broker.metrics import BrokerMetrics, Histogram
from store_native.names import is_retry_topic, is_system_prefixed

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]

_STORE_COUNTERS = ("_total", "_seconds_total")
_STORE_NAMES = {
    "flush_behind_bytes": "storage_flush_behind_bytes",
    "dispatch_behind_bytes": "storage_dispatch_behind_bytes",
    # The HTTP side counts these two with topic labels.
    "messages_in_total": "store_messages_in_total",
    "bytes_in_total": "store_bytes_in_total",
}


class Exposition:
    """Collects samples, one block per metric.

    Args:
        labels: Carried by every sample: cluster, node_type, node_id.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = dict(labels)
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> None:
        """Adds a metric that goes up and down."""
        self._block(name, "gauge", text, samples)

    def counter(self, name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> None:
        """Adds a metric that only grows."""
        self._block(name, "counter", text, samples)

    def histogram(self, name: str, text: str, samples: Iterable[tuple[Labels, Histogram]]) -> None:
        """Adds cumulative buckets, sum and count."""
        self._head(name, "histogram", text)
        for labels, histogram in samples:
            below = 0
            for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
                below += count
                self._sample(f"{name}_bucket", {**labels, "le": str(bound)}, below)
            self._sample(f"{name}_sum", labels, histogram.total)
            self._sample(f"{name}_count", labels, below)

    def plain_gauge(self, name: str, text: str, value: float) -> None:
        """Adds a gauge whose name is the same for every program: no prefix, no labels."""
        number = "NaN" if math.isnan(value) else str(int(value))
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {number}"]

    def text(self) -> bytes:
        """Returns everything added."""
        return ("\n".join(self._lines) + "\n").encode()

    def _block(self, name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> None:
        self._head(name, kind, text)
        for labels, value in samples:
            self._sample(name, labels, value)

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines.append(f"# HELP lakemq_{name} {text}")
        self._lines.append(f"# TYPE lakemq_{name} {kind}")

    def _sample(self, name: str, labels: Labels, value: float) -> None:
        rendered = ",".join(f'{key}="{_escaped(text)}"' for key, text in {**self._labels, **labels}.items())
        number = int(value) if float(value).is_integer() else value
        self._lines.append(f"lakemq_{name}{{{rendered}}} {number}")


def add_broker(page: Exposition, metrics: BrokerMetrics) -> None:
    """Adds what the HTTP side counts."""
    # Copies, because the event loop goes on counting while this thread renders.
    topics_in, topics_out = dict(metrics.topics_in), dict(metrics.topics_out)
    kind = {"message_type": "normal"}
    page.counter(
        "messages_in_total",
        "Messages stored for producers.",
        (({"topic": topic, **kind}, c.messages) for topic, c in topics_in.items()),
    )
    page.counter(
        "throughput_in_total",
        "Bytes of the request bodies stored for producers.",
        (({"topic": topic, **kind}, c.bytes) for topic, c in topics_in.items()),
    )
    page.counter(
        "messages_out_total",
        "Messages handed out to pulls.",
        ((_out_labels(*key), c.messages) for key, c in topics_out.items()),
    )
    page.counter(
        "throughput_out_total",
        "Bytes handed out to pulls.",
        ((_out_labels(*key), c.bytes) for key, c in topics_out.items()),
    )
    page.histogram(
        "message_size", "Bytes of a message; a batch counts with its mean.", [(kind, metrics.message_size)]
    )
    page.histogram(
        "rpc_latency",
        "Milliseconds from the request's head to its answer; bulk_send has bodies parsed off the event loop.",
        (({"protocol_type": "http", "request_code": name}, h) for name, h in metrics.latency_ms.items()),
    )
    page.counter(
        "errors_total", "Refusals by code.", (({"code": c}, n) for c, n in dict(metrics.errors).items())
    )
    page.counter(
        "flow_control_total",
        "Sends turned away by flow control, by the place that did.",
        (({"reason": r}, n) for r, n in dict(metrics.refusals).items()),
    )
    page.counter(
        "send_status_total",
        "Sends stored less safely than asked.",
        (({"status": s}, n) for s, n in dict(metrics.send_status).items()),
    )
    page.counter(
        "duplicate_sends_total", "Repeats recognised by Idempotency-Key.", [({}, metrics.duplicates)]
    )


def add_store(page: Exposition, stats: Mapping[str, float]) -> None:
    """Adds what the store counts, under its own names except where RocketMQ has one."""
    storage = {"storage_type": "local", "storage_medium": "disk"}
    for name, value in sorted(stats.items()):
        shown = _STORE_NAMES.get(name, name)
        labels = storage if shown.startswith("storage_") else {}
        add = page.counter if name.endswith(_STORE_COUNTERS) else page.gauge
        add(shown, f"The store's {name}.", [(labels, value)])


def add_process(page: Exposition) -> None:
    """Adds what the process holds, under the names every Prometheus client uses, without our prefix."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    page.plain_gauge("process_open_fds", "File descriptors open.", _open_descriptors())
    page.plain_gauge("process_max_fds", "File descriptors that may be open.", soft)
    page.plain_gauge("process_resident_memory_bytes", "Memory that stands in RAM.", _resident_bytes())


def _open_descriptors() -> float:
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return float("nan")  # there is none left to look with


def _resident_bytes() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * resource.getpagesize()


def _out_labels(topic: str, group: str) -> dict[str, str]:
    return {
        "topic": topic,
        "consumer_group": group,
        "is_retry": str(is_retry_topic(topic)).lower(),
        "is_system": str(is_system_prefixed(topic)).lower(),
    }


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
