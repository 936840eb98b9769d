"""P12: a group whose handler waits 100 ms for each message, with default options, against two others.

Owns all sides. The ideal is twenty calls at a time in each core and nothing else: threads of one process
that do the same. RocketMQ's push consumer has its defaults too: twenty threads, whatever the cores. Timed on
our side: from the start of the first micro-batch that carried messages to the end of the last, with what
lies between them; on RocketMQ's from its first call to the end of its last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.ledger import run_group
from benchmarks.measurement import Comparison, Measure, Measurement
from benchmarks.reading import bench_session, fill
from benchmarks.scale import Scale
from benchmarks.sending import TOPIC, rocketmq_load
from benchmarks.server import LakeMQ
from benchmarks.waiting_handler import CALL_S
from tests.support.peer_brokers import RocketMQ, run_java
from tests.support.peer_jars import POMS, classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALLS_A_CORE: Final = 20
CORES: Final = 2
"""Of the session that the bench has."""
BODY_BYTES: Final = 1024


def slow_handler(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P12."""
    with ExitStack() as stack:
        spark = bench_session(directory)
        lakemq = stack.enter_context(LakeMQ(directory / "lakemq", "async"))
        topic = fill(lakemq, None, BODY_BYTES, scale.slow_messages)
        against = f"{CALLS_A_CORE} threads a core that do nothing else"
        measurement = Measurement("P12", "slow-handler", 0.8, "msg/s", "rows committed to Delta", against)
        ours = _consume(spark, lakemq, topic, scale.slow_messages, directory)
        yield Comparison(measurement, ours, _ideal(scale.slow_messages))
        rocketmq = stack.enter_context(RocketMQ(directory / "rocketmq", heap="1g"))
        rocketmq_load(rocketmq, 16, 1, scale.slow_messages)
        against = "RocketMQ push consumer, default options"
        measurement = Measurement("P12", "slow-push", 0.9, "msg/s", "rows committed to Delta", against)
        yield Comparison(measurement, ours, _rocketmq_push(rocketmq, scale.slow_messages))


def _consume(spark: SparkSession, lakemq: LakeMQ, topic: str, messages: int, directory: Path) -> Measure:
    def measure() -> float:
        handler = "benchmarks.waiting_handler:wait"
        batches = run_group(spark, lakemq, topic, messages, directory, handler)
        return messages / (_ended(batches[-1]) - _started(batches[0]))

    return measure


def _rocketmq_push(rocketmq: RocketMQ, messages: int) -> Measure:
    def measure() -> float:
        path = classes(POMS / "rocketmq" / "src" / "RocketLoad.java", "rocketmq")
        wait_ms = str(round(CALL_S * 1000))
        arguments = ["push", "--namesrv", rocketmq.name_server, "--topic", TOPIC, "--wait", wait_ms]
        arguments += ["--count", str(messages)]
        return float(run_java(path, "RocketLoad", *arguments, home=rocketmq.directory, heap="1g")[0]["rate"])

    return measure


def _started(batch: Any) -> float:
    return datetime.fromisoformat(batch["timestamp"]).timestamp()


def _ended(batch: Any) -> float:
    return _started(batch) + float(batch["durationMs"]["triggerExecution"]) / 1000


def _ideal(messages: int) -> Measure:
    def measure() -> float:
        began = time.monotonic()
        with ThreadPoolExecutor(CALLS_A_CORE * CORES) as calls:
            for _ in calls.map(time.sleep, [CALL_S] * messages):
                pass
        return messages / (time.monotonic() - began)

    return measure
