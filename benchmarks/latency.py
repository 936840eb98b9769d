"""P13 and P14: how long single sends take at a fixed rate, beside RocketMQ's, and beside bulk loads.

Owns the open-loop load: request i is due i/rate seconds after the start, and its latency counts from then, so
that a pause of the server is seen by every request it would have met.
"""

from __future__ import annotations

import functools
import http.client
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.measurement import Comparison, Measurement
from benchmarks.scale import Scale
from benchmarks.sending import JSON, NDJSON, TOPIC, json_body, lakemq_broker, rocketmq_broker, rocketmq_load
from benchmarks.server import LakeMQ, post_load, start_load
from tests.support.processes import LOOPBACK

CONNECTIONS: Final = 64
PROMISE: Final = "after the flush, open loop"
BULK_TOPIC: Final = "bulk"
BULK_BYTES: Final = 16 << 20
SMALL_RATE: Final = 500.0
"""Small sends a second beside bulk loads: few enough that the two cores carry both."""
MANY: Final = 1_000_000


def tail(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P13: p99 and p99.9 of single sends at half of the slower side's largest rate."""
    with ExitStack() as stack:
        lakemq = lakemq_broker(stack, directory / "p13", "sync")
        rocketmq = rocketmq_broker(stack, directory / "p13-rocketmq", "sync")
        load = functools.partial(_post_singles, lakemq)
        their_load = functools.partial(rocketmq_load, rocketmq, CONNECTIONS, 1)
        largest = [max(float(side(scale.singles)["rate"]) for _ in range(2)) for side in (load, their_load)]
        rate = round(min(largest) / 2)
        print(
            f"P13: largest rates {largest[0]:,.0f} and {largest[1]:,.0f} a second, offered {rate:,}",
            flush=True,
        )
        runs = _Runs(lambda: load(scale.singles, rate), lambda: their_load(scale.singles, rate))
        for name, key in (("p99", "p99_us"), ("p99.9", "p999_us")):
            measurement = Measurement(
                "P13",
                f"tail-{name}",
                0.8,
                "ms",
                f"{PROMISE}, {rate:,}/s",
                "RocketMQ sync send, 64 threads, same rate",
                at_most=True,
            )
            yield Comparison(measurement, runs.reader(0, key), runs.reader(1, key))


class _Runs:
    """Runs each side once for all the measurements that are read from one run."""

    def __init__(self, *sides: Callable[[], dict[str, Any]]) -> None:
        self._sides = sides
        self._results: list[list[dict[str, Any]]] = [[] for _ in sides]

    def reader(self, side: int, key: str) -> Callable[[], float]:
        """Returns a measure that reads the runs of a side in turn and runs it when none is left."""
        results = self._results[side]
        position = 0

        def measure() -> float:
            nonlocal position
            if position == len(results):
                results.append(self._sides[side]())
            position += 1
            return float(results[position - 1][key]) / 1000

        return measure


def isolation(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P14: p99 of small sends beside one connection that posts 16 MiB of NDJSON again and again."""
    for flush in ("sync", "async"):
        with ExitStack() as stack:
            lakemq = lakemq_broker(stack, directory / f"p14-{flush}", flush)
            lakemq.put_topic(BULK_TOPIC)
            count = scale.singles // 10
            promise = f"{flush} flush, open loop, {SMALL_RATE:,.0f}/s"
            measurement = Measurement(
                "P14",
                f"beside-bulk-{flush}",
                5.0,
                "ms",
                promise,
                "the same without bulk loads",
                at_most=True,
                relation="difference",
            )
            yield Comparison(
                measurement,
                functools.partial(_beside_bulk, lakemq, count),
                functools.partial(_alone, lakemq, count),
            )
        shutil.rmtree(directory)


def _alone(lakemq: LakeMQ, count: int) -> float:
    return float(_post_singles(lakemq, count, SMALL_RATE)["p99_us"]) / 1000


def _beside_bulk(lakemq: LakeMQ, count: int) -> float:
    folder = lakemq.directory / "bulk"
    folder.mkdir(exist_ok=True)
    before = _bulk_messages(lakemq)
    path = f"/api/v1/topics/{BULK_TOPIC}/messages"
    load = start_load(lakemq.port, folder, path, NDJSON, _bulk_body(), connections=1, count=MANY, warmup=0)
    try:
        p99 = _alone(lakemq, count)
    finally:
        load.kill()
        load.communicate()
    stored = (_bulk_messages(lakemq) - before) // _bulk_lines()
    if stored < 1:
        raise RuntimeError("no bulk load was stored while small ones were measured")
    print(f"P14: {stored} bulk loads beside {count:,} small sends, p99 {p99:.2f} ms", flush=True)
    return p99


def _bulk_messages(lakemq: LakeMQ) -> int:
    connection = http.client.HTTPConnection(LOOPBACK, lakemq.port, timeout=30)
    connection.request("GET", f"/api/v1/topics/{BULK_TOPIC}/queues")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    queues = answer["queues"] if isinstance(answer, dict) else answer
    return sum(int(queue["max_offset"]) for queue in queues)


def _bulk_lines() -> int:
    return BULK_BYTES // len(_BULK_LINE)


def _bulk_body() -> bytes:
    return _BULK_LINE * _bulk_lines()


_BULK_LINE: Final = json.dumps({"body": "x" * 1000}).encode() + b"\n"


def _post_singles(lakemq: LakeMQ, count: int, rate: float | None = None) -> dict[str, Any]:
    return post_load(
        lakemq.port,
        lakemq.directory,
        f"/api/v1/topics/{TOPIC}/messages",
        JSON,
        json_body(),
        connections=CONNECTIONS,
        count=count,
        warmup=count // 4,
        rate=rate,
    )
