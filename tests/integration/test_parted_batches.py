"""A handler that ends Spark's worker from a process of its own: its batch is handled in smaller parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from jobs.consume import consume
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import LakeMQError
from tests.integration.test_handler_host import post, rows
from tests.support.broker_process import BrokerProcess
from tests.support.faulty_ledger import CommitFaults, with_faults
from tests.support.spark_streams import TRIGGER

HANDLER = """
import os, pathlib, signal, threading

def handle(message):
    with (pathlib.Path(__file__).parent / "calls").open("a") as calls:
        calls.write(message.text + "\\n")
    if message.text.startswith("kill"):
        os.kill(os.getppid(), signal.SIGKILL)
        threading.Event().wait()
"""


def settings(broker: BrokerProcess, directory: Path, topic: str, **options: Any) -> ConsumeSettings:
    module = f"killing_{topic}".replace("-", "_")
    (directory / f"{module}.py").write_text(HANDLER)
    defaults: dict[str, Any] = {
        "ledger": ledger_at(str(directory / "ledger")),
        "host": HandlerHost(concurrency=4, isolation="process"),
        "max_reconsume_times": 0,
    }
    return ConsumeSettings(
        group=topic,
        topics=(topic,),
        handler=HandlerTarget(f"{module}:handle", "auto", (str(directory),)),
        endpoint=broker.endpoint,
        start="earliest",
        trigger=TRIGGER,
        until_idle_s=0.5,
        **defaults | options,
    )


def test_the_message_that_ends_sparks_worker_is_found_and_remembered_over_a_restart(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    healthy = [f"healthy-{n}" for n in range(12)]
    post(shared_broker, "killed", [*healthy[:9], "kill", *healthy[9:]])
    faults = CommitFaults()
    # Behind the commit of the fence and the one that the dying workers end: all is handled, nothing written.
    faults.arm(DELIVERIES, 3, "before")
    ledger = with_faults(ledger_at(str(tmp_path / "ledger")), faults)
    with pytest.raises(LakeMQError, match="InjectedError"):
        consume(settings(shared_broker, tmp_path, "killed", ledger=ledger), lambda: spark)
    before = Counter((tmp_path / "calls").read_text().split())
    assert before["kill"] >= 3

    consume(settings(shared_broker, tmp_path, "killed"), lambda: spark)
    found = rows(tmp_path / "ledger", "SELECT attempt, verdict, reason, error_type FROM deliveries")
    assert Counter(tuple(row.values()) for row in found) == {
        (1, "ACK", None, None): len(healthy),
        (1, "DEAD", "worker died", "WorkerDied"): 1,
    }
    assert rows(tmp_path / "ledger", "SELECT * FROM duplicate_deliveries") == []
    assert rows(tmp_path / "ledger", "SELECT * FROM delivery_gaps") == []
    calls = Counter((tmp_path / "calls").read_text().split())
    assert calls["kill"] == before["kill"], "it was found before the restart"
    assert {calls[message] - before[message] for message in healthy} == {1}


def test_the_lanes_of_an_orderly_group_wait_behind_a_message_that_ends_sparks_worker(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("killed-in-order", read_queue_nums=1, write_queue_nums=1)
    lines = "\n".join(f'{{"body":"{body}"}}' for body in ("a", "b", "kill", "c", "d"))
    client.send_ndjson("killed-in-order", lines.encode())
    chosen = settings(
        *(shared_broker, tmp_path, "killed-in-order"),
        mode="orderly",
        max_reconsume_times=1,
        retry_delays="1s",
    )
    consume(chosen, lambda: spark)
    text = "SELECT queue_offset, attempt, verdict, reason FROM deliveries WHERE verdict <> 'PARKED'"
    assert [tuple(row.values()) for row in rows(tmp_path / "ledger", f"{text} ORDER BY 1, 2")] == [
        (0, 1, "ACK", None),
        (1, 1, "ACK", None),
        (2, 1, "RETRY", "worker died"),
        (2, 2, "DEAD", "worker died"),
        (3, 1, "ACK", None),
        (4, 1, "ACK", None),
    ]
    calls = (tmp_path / "calls").read_text().split()
    last_kill = max(place for place, call in enumerate(calls) if call == "kill")
    assert set(calls[:last_kill]) == {"a", "b", "kill"}
    assert calls[last_kill + 1 :] == ["c", "d"]
    assert rows(tmp_path / "ledger", "SELECT * FROM duplicate_deliveries") == []


def test_a_table_with_a_constraint_that_only_spark_can_read_is_written_by_spark(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    ledger = ledger_at(str(tmp_path / "ledger"))
    ledger.create(DELIVERIES, spark=spark)
    table = ledger.qualified(DELIVERIES)
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT mine CHECK (year(finished_at) > 2000)")
    for topic, bodies in (("constrained", ["a", "b"]), ("constrained-parts", ["a", "kill", "b"])):
        post(shared_broker, topic, bodies)
        consume(settings(shared_broker, tmp_path, topic), lambda: spark)
        found = spark.sql(f"SELECT verdict FROM {table} WHERE topic = '{topic}' ORDER BY verdict").collect()
        assert [row.verdict for row in found] == ["ACK", "ACK", "DEAD"][: len(bodies)]
    engines = {row.engineInfo.partition("/")[0] for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()}
    assert engines == {"delta-rs:py-" + deltalake.__version__, "Apache-Spark"}
    by_spark = spark.sql(f"DESCRIBE HISTORY {table}").where("engineInfo LIKE 'Apache-Spark%'").count()
    assert by_spark >= 5, "the constraint, and of each group the fence and a batch"
