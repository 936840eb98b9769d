"""Handlers that end, hang and are opened, in Spark: each costs its own message, and no stop waits for one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.held_handler import HeldHandler
from tests.support.spark_streams import TRIGGER
from tests.support.waiting import wait_until

HANDLERS = """
import os, threading
from pathlib import Path

def ends(message):
    if message.text == "exit":
        os._exit(7)
    if message.text == "hang":
        threading.Event().wait()

class Opened:
    def __init__(self):
        self.notes = Path(__file__).parent / "notes"

    def open(self):
        self.note("open")

    async def __call__(self, message):
        pass

    def close(self):
        self.note("close")

    def note(self, what):
        with self.notes.open("a") as file:
            file.write(f"{os.getpid()} {what}\\n")
"""


def post(broker: BrokerProcess, topic: str, bodies: list[str]) -> None:
    client = broker.client()
    client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    client.send_ndjson(topic, "\n".join(json.dumps({"body": body}) for body in bodies).encode())


def rows(ledger: Path, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = LedgerReader(ledger).sql(text).to_pylist()
    return found


def test_a_handler_that_ends_or_hangs_costs_its_own_message_only(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "ending_handlers.py").write_text(HANDLERS)
    post(shared_broker, "ends", [*[str(n) for n in range(30)], "exit", "hang", "exit"])
    settings = ConsumeSettings(
        group="ends",
        topics=("ends",),
        handler=HandlerTarget("ending_handlers:ends", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=shared_broker.endpoint,
        start="earliest",
        max_reconsume_times=0,
        trigger=TRIGGER,
        until_idle_s=0.5,
        host=HandlerHost(concurrency=4, timeout_s=5.0),
    )
    consume(settings, lambda: spark)
    found = rows(tmp_path / "ledger", "SELECT attempt, verdict, reason, error_type FROM deliveries")
    assert Counter(tuple(row.values()) for row in found) == {
        (1, "ACK", None, None): 30,
        (1, "DEAD", "worker died (exit status 7)", "WorkerDied"): 2,
        (1, "DEAD", "the handler did not return within 5 s (consume timeout)", "ConsumeTimeout"): 1,
    }
    assert rows(tmp_path / "ledger", "SELECT * FROM duplicate_deliveries") == []


@pytest.mark.nightly
def test_a_class_is_opened_in_its_worker_and_closed_when_the_command_ends(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "opening_handlers.py").write_text(HANDLERS)
    post(broker, "opened", [str(n) for n in range(10)])
    arguments: tuple[str, ...] = ("--group", "o", "--topic", "opened", "--handler", "opening_handlers:Opened")
    arguments = (*arguments, "--from", "earliest", "--endpoint", broker.endpoint, "--until-idle", "0.5s")
    notes = tmp_path / "notes"

    def closed() -> bool:
        said = [line.split() for line in notes.read_text().splitlines()]
        opened = sorted(worker for worker, what in said if what == "open")
        assert len(opened) == len(set(opened)) > 0, "once in each worker"
        return sorted(worker for worker, what in said if what == "close") == opened

    with ConsumerProcess(tmp_path, *arguments) as consumer:
        assert consumer.wait() == 0, consumer.log()
        # Before the end of the block, which kills what the command has left.
        wait_until(closed, otherwise=notes.read_text)
    assert rows(tmp_path / "ledger", "SELECT verdict, count(*) AS n FROM deliveries GROUP BY verdict") == [
        {"verdict": "ACK", "n": 10}
    ]


@pytest.mark.nightly
@pytest.mark.long
def test_a_stop_does_not_wait_for_a_handler_that_hangs(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    post(broker, "held", [str(n) for n in range(10)])
    handler = HeldHandler(tmp_path, "held_for_ever")
    arguments: tuple[str, ...] = (
        "--group",
        "h",
        "--topic",
        "held",
        "--handler",
        "held_for_ever:hold",
        "--from",
        "earliest",
    )
    arguments = (*arguments, "--endpoint", broker.endpoint, "--stop-timeout", "1s")
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.wait_for(handler.handling.exists)
        consumer.terminate()
        assert consumer.wait() == 0, consumer.log()
        assert "did not end in time for a stop within 1 s: the batch under way is given up" in consumer.log()
        assert "Traceback" not in consumer.log(), consumer.log()
    handler.go_on.touch()
    settings = ConsumeSettings(
        group="h",
        topics=("held",),
        handler=HandlerTarget("held_for_ever:hold", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=broker.endpoint,
        start="earliest",
        until_idle_s=0.5,
    )
    consume(settings, lambda: spark)
    assert len(rows(tmp_path / "ledger", "SELECT queue_offset FROM deliveries")) == 10
    assert rows(tmp_path / "ledger", "SELECT * FROM duplicate_deliveries") == []
