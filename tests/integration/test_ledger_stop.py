"""Stopping a consumer: between batches, with nothing lost, repeated or logged as a failure."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.run_loop import RunLoop
from jobs.runtime.started_stream import StartedStream
from jobs.settings import ConsumeSettings
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.held_handler import HeldHandler

pytestmark = pytest.mark.long

WAIT_S = 60.0


def test_a_batch_planned_while_the_job_stops_leaves_no_trace_and_runs_at_the_next_start(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at_the_gate, inside = threading.Event(), threading.Event()
    handled: list[int] = []

    def run_until(event: threading.Event, gate: BatchGate) -> None:
        loop = RunLoop(spark, gate)

        def process(batch: DataFrame, batch_id: int) -> None:
            at_the_gate.set()
            with gate.batch():
                handled.append(batch_id)
                inside.set()

        rows = spark.readStream.format("rate").load()
        stream = StartedStream(
            rows.writeStream.foreachBatch(process).option("checkpointLocation", str(tmp_path)).start
        )
        assert event.wait(WAIT_S)
        loop.stop()
        loop.run([stream])
        assert not stream.goes_on()

    stopping = BatchGate()
    stopping.close()
    run_until(at_the_gate, stopping)
    assert handled == []
    assert (tmp_path / "offsets" / "0").exists()
    assert not (tmp_path / "commits" / "0").exists()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []

    run_until(inside, BatchGate())
    assert handled[0] == 0


def test_sigterm_to_all_its_processes_is_a_stop_and_the_next_start_repeats_the_batch(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    """As systemd stops a service by default."""
    topic = "all-stopped"
    with shared_broker.client() as client:
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
        client.send_ndjson(topic, b"\n".join(b'{"body": "m"}' for _ in range(10)))
    handler = HeldHandler(tmp_path, "held_as_all_stop")
    arguments: tuple[str, ...] = ("--group", "as", "--topic", topic, "--from", "earliest")
    arguments += (
        "--until-idle",
        "1s",
        "--endpoint",
        shared_broker.endpoint,
        "--handler",
        f"{handler.module}:hold",
    )
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.wait_for(handler.handling.exists)
        for process in [consumer.process.pid, *consumer.processes()]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        assert consumer.wait() == 0, consumer.log()
        assert "Spark got the signal too and has ended: the batch under way is given up" in consumer.log()
        assert "Traceback" not in consumer.log(), consumer.log()
    handler.go_on.touch()
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        assert consumer.wait() == 0, consumer.log()
    ledger = LedgerReader(tmp_path / "ledger")
    done = ledger.sql(
        "SELECT queue_offset FROM deliveries WHERE verdict = 'ACK' ORDER BY queue_offset"
    ).to_pylist()
    assert [row["queue_offset"] for row in done] == list(range(10))
    assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0


def test_sigterm_ends_the_command_between_batches_with_exit_code_0_and_a_clean_log(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic("stopped", read_queue_nums=1, write_queue_nums=1)
    client.send_ndjson("stopped", "\n".join(json.dumps({"body": str(n)}) for n in range(100)).encode())
    (tmp_path / "beside_me.py").write_text("def handle(message): pass\n")
    arguments: tuple[str, ...] = (
        "--group",
        "s",
        "--topic",
        "stopped",
        "--handler",
        "beside_me:handle",
        "--from",
        "earliest",
    )
    arguments = (*arguments, "--endpoint", shared_broker.endpoint)
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.await_started()
        consumer.terminate()  # Spark is planning its first batches
        assert consumer.wait() == 0, consumer.log()
        for word in ("ERROR", "JobStopped", "StackOverflowError", "Traceback"):
            assert word not in consumer.log(), consumer.log()
    settings = ConsumeSettings(
        group="s",
        topics=("stopped",),
        handler=HandlerTarget("beside_me:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=shared_broker.endpoint,
        start="earliest",
        until_idle_s=0.5,
    )
    consume(settings, lambda: spark)
    ledger = LedgerReader(tmp_path / "ledger")
    assert ledger.sql("SELECT DISTINCT queue_offset FROM deliveries").num_rows == 100
    assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0
