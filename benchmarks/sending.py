"""P1, P2, P3 and P5: messages into the broker over HTTP, against RocketMQ, Kafka and a bare route.

Owns the load's shape. Equal promises only: both sides answer before the flush, or both after it. RocketMQ:
flushDiskType; Kafka: log.flush.interval.messages=1 flushes each append before its acknowledgement.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.measurement import Comparison, Measure, Measurement
from benchmarks.scale import Scale
from benchmarks.server import BareServer, HyperServer, LakeMQ, post_load
from tests.support.peer_brokers import Kafka, RocketMQ, run_java
from tests.support.peer_jars import POMS, classes

TOPIC: Final = "bench"
BODY: Final = "".join(chr(ord("a") + at % 26) for at in range(1024))
BATCH: Final = 100
CONNECTIONS: Final = 32
BATCH_CONNECTIONS: Final = 8
ROCKETMQ_THREADS: Final = 64
ROCKETMQ_BATCH_THREADS: Final = 16
PROMISES: Final = {"async": "answered before the flush", "sync": "answered after the flush"}
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"


def single(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P1: one message a request, against RocketMQ's synchronous send."""
    for flush, promise in PROMISES.items():
        with ExitStack() as stack:
            lakemq = lakemq_broker(stack, directory / f"p1-{flush}", flush)
            rocketmq = rocketmq_broker(stack, directory / f"p1-{flush}-rocketmq", flush)
            measurement = Measurement(
                "P1", f"single-{flush}", 1.3, "messages/s", promise, "RocketMQ sync send, 64 threads"
            )
            theirs = _rocketmq_send(rocketmq, ROCKETMQ_THREADS, 1, scale.singles)
            yield Comparison(measurement, post_rate(lakemq, CONNECTIONS, scale.singles), theirs)
        _discard(directory)


def bare(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P2: the same request, against a route and a server that do nothing with it."""
    yardsticks: dict[str, tuple[Callable[[Path], BareServer | HyperServer], float, str]] = {
        "bare-route": (BareServer, 1.0, "a bare raw ASGI route"),
        "bare-hyper": (HyperServer, 0.5, "a bare server in Rust (hyper, one thread)"),
    }
    for flush, promise in PROMISES.items():
        for name, (make, goal, against) in yardsticks.items():
            with ExitStack() as stack:
                lakemq = lakemq_broker(stack, directory / f"p2-{flush}", flush)
                folder = directory / f"p2-{flush}-bare"
                server = make(folder)
                stack.callback(server.stop)
                theirs = partial(_rate, server.port, folder, JSON, json_body(), CONNECTIONS, scale.singles)
                measurement = Measurement("P2", f"{name}-{flush}", goal, "requests/s", promise, against)
                yield Comparison(measurement, post_rate(lakemq, CONNECTIONS, scale.singles), theirs)
            _discard(directory)


def batches(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P3: batches of 100, as NDJSON and as Arrow, against RocketMQ's batches and Kafka's producer."""
    bodies = {"ndjson": (NDJSON, _ndjson_body()), "arrow": (ARROW, _arrow_body())}
    for flush, promise in PROMISES.items():
        for form, (content_type, body) in bodies.items():
            for peer in ("rocketmq", "kafka"):
                with ExitStack() as stack:
                    folder = directory / f"p3-{form}-{peer}-{flush}"
                    lakemq = lakemq_broker(stack, folder, flush)
                    if peer == "rocketmq":
                        rocketmq = rocketmq_broker(stack, folder / peer, flush)
                        theirs = _rocketmq_send(rocketmq, ROCKETMQ_BATCH_THREADS, BATCH, scale.batched)
                        against, goal = "RocketMQ batches of 100", 4.0
                    else:
                        theirs = _kafka_send(_kafka(stack, folder / peer, flush), scale.batched)
                        against, goal = "Kafka producer, acks=1", 2.5
                    measurement = Measurement(
                        "P3", f"{form}-vs-{peer}-{flush}", goal, "messages/s", promise, against
                    )
                    yield Comparison(
                        measurement, _post_batches(lakemq, content_type, body, scale.batched), theirs
                    )
                _discard(directory)


def flush_cost(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P5: 64 connections, flush before the answer, against our own answer before the flush."""
    with ExitStack() as stack:
        ours = lakemq_broker(stack, directory / "p5-sync", "sync")
        own = lakemq_broker(stack, directory / "p5-async", "async")
        measurement = Measurement(
            "P5", "sync-vs-own-async", 0.85, "messages/s", "after the flush / before it", "own ASYNC_FLUSH"
        )
        yield Comparison(measurement, post_rate(ours, 64, scale.singles), post_rate(own, 64, scale.singles))


def _discard(directory: Path) -> None:
    """Deletes what a measurement wrote, once it is done: all of them together would fill the disk."""
    shutil.rmtree(directory)


def lakemq_broker(stack: ExitStack, directory: Path, flush: str) -> LakeMQ:
    """Starts a broker with the topic of the bench."""
    broker = stack.enter_context(LakeMQ(directory, flush))
    broker.put_topic(TOPIC)
    return broker


def rocketmq_broker(stack: ExitStack, directory: Path, flush: str) -> RocketMQ:
    """Starts a RocketMQ broker with the same promise."""
    settings = {
        "flushDiskType": "SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH",
        "defaultTopicQueueNums": 4,
    }
    return stack.enter_context(RocketMQ(directory, commitlog_file_size=1 << 30, settings=settings, heap="1g"))


def _kafka(stack: ExitStack, directory: Path, flush: str) -> Kafka:
    settings: dict[str, str | int] = {"log.flush.interval.messages": 1} if flush == "sync" else {}
    kafka = stack.enter_context(Kafka(directory, settings=settings))
    kafka.load("create", topic=TOPIC, partitions=4)
    return kafka


def rocketmq_load(
    rocketmq: RocketMQ, threads: int, batch: int, count: int, rate: float | None = None
) -> dict[str, Any]:
    """Sends with RocketMQ's client, as fast as it goes or at a fixed rate.

    Returns:
        What the client printed: rate in messages/s, p50_us, p99_us, p999_us.
    """
    path = classes(POMS / "rocketmq" / "src" / "RocketLoad.java", "rocketmq")
    arguments = ["send", "--namesrv", rocketmq.name_server, "--topic", TOPIC, "--threads", str(threads)]
    arguments += ["--batch", str(batch), "--count", str(count), "--warmup", str(count // 4)]
    if rate is not None:
        arguments += ["--rate", str(rate)]
    return run_java(path, "RocketLoad", *arguments, home=rocketmq.directory, heap="1g")[0]


def _rocketmq_send(rocketmq: RocketMQ, threads: int, batch: int, count: int) -> Measure:
    return lambda: float(rocketmq_load(rocketmq, threads, batch, count)["rate"])


def _kafka_send(kafka: Kafka, count: int) -> Measure:
    def measure() -> float:
        row = kafka.load("produce", topic=TOPIC, acks="1", count=count, warmup=count // 4)[0]
        return float(row["rate"])

    return measure


def post_rate(lakemq: LakeMQ, connections: int, count: int) -> Measure:
    """Returns the rate of single messages over so many connections."""
    return lambda: _rate(lakemq.port, lakemq.directory, JSON, json_body(), connections, count)


def _post_batches(lakemq: LakeMQ, content_type: str, body: bytes, count: int) -> Measure:
    requests = count // BATCH
    return lambda: (
        BATCH * _rate(lakemq.port, lakemq.directory, content_type, body, BATCH_CONNECTIONS, requests)
    )


def _rate(port: int, directory: Path, content_type: str, body: bytes, connections: int, count: int) -> float:
    path = f"/api/v1/topics/{TOPIC}/messages"
    result = post_load(
        port, directory, path, content_type, body, connections=connections, count=count, warmup=count // 4
    )
    return float(result["rate"])


def json_body() -> bytes:
    """Returns a request of one message of 1 KB."""
    return json.dumps({"body": BODY}).encode()


def _ndjson_body() -> bytes:
    return b"".join(json.dumps({"body": BODY}).encode() + b"\n" for _ in range(BATCH))


def _arrow_body() -> bytes:
    table = pa.table({"body": pa.array([BODY.encode()] * BATCH, pa.binary())})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()
