"""P11: pulls over HTTP against RocketMQ's pull consumer, one pull after another from one client.

Owns both sides' topics and how a run reads them: each queue from its begin to its end, as many messages a
pull as are asked for. RocketMQ's limits of a pull (32 messages, 256 KiB) are raised to what is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.measurement import Comparison, Measure, Measurement
from benchmarks.reading import fill
from benchmarks.scale import Scale
from benchmarks.sending import TOPIC, rocketmq_load
from benchmarks.server import LakeMQ, get_load
from lakemq.client import Client
from tests.support.peer_brokers import RocketMQ, run_java
from tests.support.peer_jars import POMS, classes

SIZE: Final = 1024
QUEUES: Final = 4
GOALS: Final = {32: 0.7, 1000: 1.5}
PROMISE: Final = "one pull after another"


def pulls(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P11, pulls of 32 and of 1,000: what the broker answers, and what our client returns."""
    with ExitStack() as stack:
        lakemq = stack.enter_context(LakeMQ(directory / "lakemq", "async"))
        topic = fill(lakemq, None, SIZE, scale.pulled)
        settings: dict[str, str | int | bool] = {
            "flushDiskType": "ASYNC_FLUSH",
            "defaultTopicQueueNums": QUEUES,
            "maxTransferCountOnMessageInMemory": max(GOALS),
            "maxTransferBytesOnMessageInMemory": 4 << 20,
        }
        rocketmq = stack.enter_context(
            RocketMQ(directory / "rocketmq", commitlog_file_size=1 << 30, settings=settings, heap="1g")
        )
        rocketmq_load(rocketmq, 16, 100, scale.pulled)
        for most, goal in GOALS.items():
            against = f"RocketMQ pull consumer, {most} a pull"
            theirs = _rocketmq_pull(rocketmq, most)
            answers = Measurement(
                "P11", f"pull-{most}", goal, "messages/s", f"{PROMISE}, not decoded", against
            )
            yield Comparison(answers, _answers(lakemq, topic, most, scale.pulled), theirs)
            client = Measurement(
                "P11", f"client-pull-{most}", None, "messages/s", f"{PROMISE}, decoded", against
            )
            yield Comparison(client, _client_pull(lakemq, topic, most, scale.pulled), theirs)


def _answers(lakemq: LakeMQ, topic: str, most: int, rows: int) -> Measure:
    pulls_of_a_queue = rows // QUEUES // most

    def measure() -> float:
        rate = 0.0
        for queue in range(QUEUES):
            path = f"/api/v1/topics/{topic}/queues/{queue}/messages?offset={{offset}}&max={most}"
            sizes = {"step": most, "offsets": pulls_of_a_queue, "connections": 1}
            done = get_load(lakemq.port, lakemq.directory, path, **sizes, count=pulls_of_a_queue, warmup=10)
            rate += float(done["rate"]) * most
        return rate / QUEUES

    return measure


def _client_pull(lakemq: LakeMQ, topic: str, most: int, rows: int) -> Measure:
    def measure() -> float:
        read = 0
        began = time.monotonic()
        with Client(lakemq.endpoint) as client:
            for queue in client.queues(topic):
                offset = queue.min_offset
                while offset < queue.max_offset:
                    pulled = client.pull(topic, queue.queue_id, offset, max=most)
                    read += len(pulled.messages)
                    offset = pulled.next_offset
        if read != rows:
            raise RuntimeError(f"{read} messages of {rows} were pulled")
        return read / (time.monotonic() - began)

    return measure


def _rocketmq_pull(rocketmq: RocketMQ, most: int) -> Measure:
    def measure() -> float:
        path = classes(POMS / "rocketmq" / "src" / "RocketLoad.java", "rocketmq")
        arguments = ["pull", "--namesrv", rocketmq.name_server, "--topic", TOPIC, "--max", str(most)]
        return float(run_java(path, "RocketLoad", *arguments, home=rocketmq.directory, heap="1g")[0]["rate"])

    return measure
