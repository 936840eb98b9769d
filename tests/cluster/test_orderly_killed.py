"""The driver of an orderly group is killed (-9): in the middle of a batch, and behind a batch's commit.

Contract: no attempt at a message begins before the message before it on its key is done, by the ledger and by
the handler's own calls; the ledger has each attempt once and each parked message once, whatever was killed.
The run after the last kill is this process's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.group.waiting_retries import WaitingRetries
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

KEYS = [f"key-{n}" for n in range(6)]
EACH = 12
HANDLER = """
import pathlib

def handle(message):
    key, number = message.text.split("/")
    with open(pathlib.Path({directory!r}) / key, "a") as calls:
        calls.write(number + "\\n")
    if (int(number), message.attempt) in {failing} and key < "key-4":
        raise ValueError("not yet")
"""
KILLS = (
    ("deliveries", "2", "before"),  # the first batch was handled, nothing of it is committed
    (
        "deliveries",
        "2",
        "after",
    ),  # what failed is committed with what is parked, Spark does not know
    ("deliveries", "3", "before"),  # a later batch was handled, with what had come back and had been parked
)
"""Table and number of the commit (the first sets the fence) and which side of it."""


@pytest.mark.nightly
def test_a_killed_driver_leaves_the_order_of_each_key_as_it_was(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    client = broker.client()
    client.put_topic("orders", read_queue_nums=4, write_queue_nums=4)
    bodies = [(key, number) for number in range(EACH) for key in KEYS]
    client.send_many("orders", [Message(f"{k}/{n}", keys=[k], sharding_key=k) for k, n in bodies])
    await_dispatch(client)
    failing = ((1, 1), (1, 2), (5, 1))
    (tmp_path / "in_order.py").write_text(HANDLER.format(directory=str(tmp_path), failing=failing))
    arguments = (
        *("--group", "g", "--topic", "orders", "--handler", "in_order:handle", "--ledger", "ledger"),
        *("--endpoint", broker.endpoint, "--from", "earliest", "--mode", "orderly", "--trigger", "200ms"),
    )
    for kill in KILLS:
        module = ("tests.support.halted_consumer", *kill)
        with ConsumerProcess(tmp_path, *arguments, halt=True, module=module) as consumer:
            consumer.halted_at()
            consumer.kill()
    reader = LedgerReader(tmp_path / "ledger")
    assert reader.sql("SELECT * FROM parked_messages").num_rows > 0
    settings = ConsumeSettings(
        group="g",
        topics=("orders",),
        handler=HandlerTarget("in_order:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=broker.endpoint,
        start="earliest",
        mode="orderly",
        trigger="200 milliseconds",
        until_idle_s=0.5,
    )
    consume(settings, lambda: spark)
    check(tmp_path, {key: {1: 3, 5: 2} if key < "key-4" else {} for key in KEYS})


@pytest.mark.nightly
def test_a_driver_killed_in_the_second_start_of_a_run_leaves_the_order_as_it_was(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    client = broker.client()
    client.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
    client.send_many(
        "orders", [Message(f"key-0/{n}", keys=["key-0"], sharding_key="key-0") for n in range(EACH)]
    )
    await_dispatch(client)
    (tmp_path / "in_runs.py").write_text(HANDLER.format(directory=str(tmp_path), failing=((1, 1),)))
    settings = ConsumeSettings(
        group="g",
        topics=("orders",),
        handler=HandlerTarget("in_runs:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=broker.endpoint,
        start="earliest",
        mode="orderly",
        max_messages_per_batch=2,
        available_now=True,
    )
    arguments = (
        *("--group", "g", "--topic", "orders", "--handler", "in_runs:handle", "--ledger", "ledger"),
        *("--endpoint", broker.endpoint, "--from", "earliest", "--mode", "orderly"),
        *("--max-batch", "2", "--available-now"),
    )
    left: list[WaitingRetries] = []
    consume(settings, lambda: spark, on_end=left.append)
    assert (left[0].messages, left[0].parked) == (1, EACH - 2)
    assert client.pull("%RETRY%g", 0, 0, wait_ms=30_000).messages
    for side in ("before", "after"):
        # Commits: the fence, the batch with the retry or the one that is repeated, then the next start's.
        module = ("tests.support.halted_consumer", "deliveries", "3", side)
        with ConsumerProcess(tmp_path, *arguments, halt=True, module=module) as consumer:
            consumer.halted_at()
            consumer.kill()
    assert LedgerReader(tmp_path / "ledger").sql("SELECT * FROM parked_messages").num_rows > 0
    consume(settings, lambda: spark, on_end=left.append)
    assert left[1] == WaitingRetries(0, None)
    check(tmp_path, {"key-0": {1: 2}})


def check(directory: Path, attempts: Mapping[str, Mapping[int, int]]) -> None:
    """All is done, once, and in the order of each key.

    Args:
        directory: with the ledger, and the handler's calls by key.
        attempts: by key and number how many attempts a message took, where it was not one.
    """
    reader = LedgerReader(directory / "ledger")
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "parked_messages"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view
    columns = "keys, state, attempt_count, first_started_at, last_finished_at"
    order = "topic, broker_name, queue_id, queue_offset"
    lanes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in reader.sql(f"SELECT {columns} FROM delivery_history ORDER BY {order}").to_pylist():
        lanes[row["keys"]].append(row)
    for key, again in attempts.items():
        expected = [("ACK", again.get(number, 1)) for number in range(EACH)]
        assert [(row["state"], row["attempt_count"]) for row in lanes[key]] == expected
        assert all(a["last_finished_at"] <= b["first_started_at"] for a, b in pairwise(lanes[key])), key
        called = [int(line) for line in (directory / key).read_text().split()]
        assert all(b <= 1 + max(called[: at + 1]) for at, b in enumerate(called[1:])), (key, called)
        assert set(called) == set(range(EACH))
