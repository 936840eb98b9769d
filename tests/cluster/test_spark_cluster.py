"""A group on a standalone Spark cluster of two workers with two executors each.

Contract: both hosts call the handler, which travels with the command; an executor that is killed and a host
that goes away cost a repeated call at most: the ledger has one outcome for each message, none is left out.
The same runs under spark-submit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from delta_tables.ledger_reader import LedgerReader
from lakemq import Message
from lakemq.client import Client
from lakemq.spark import SHIPPED_WITH_SPARK, delta_package
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import START_TIMEOUT_S, ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.spark_cluster import SparkCluster

ROOT = Path(__file__).resolve().parents[2]
FIRST, THEN = 400, 200
HANDLER = """
import json, os, pathlib, threading, time

def handle(message):
    calls = pathlib.Path({calls!r}) / f"{{os.getpid()}}-{{threading.get_ident()}}"
    time.sleep(0.02)
    with open(calls, "a") as file:
        print(json.dumps([message.text, os.getcwd()]), file=file)
"""
ON_SMALL_EXECUTORS = (
    *("--conf", "spark.executor.cores=1", "--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
    # Delta reads a table's log in 50 tasks without it.
    *("--conf", "spark.databricks.delta.snapshotPartitions=2", "--conf", "spark.sql.shuffle.partitions=2"),
)
OF_DELTA = (
    *("--packages", delta_package(), "--exclude-packages", ",".join(SHIPPED_WITH_SPARK)),
    *("--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"),
    *("--conf", "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"),
)


class Calls:
    """What a handler has noted: for each call the message and the working directory, which is an executor's.

    Attributes:
        handler: its module, where neither the command nor an executor would look.
    """

    def __init__(self, directory: Path, module: str) -> None:
        self._directory = directory / "calls"
        self._directory.mkdir()
        self.handler = directory / "elsewhere" / f"{module}.py"
        self.handler.parent.mkdir()
        self.handler.write_text(HANDLER.format(calls=str(self._directory)))

    def wheel(self) -> Path:
        """A wheel of the module alone, which is in no other place then."""
        made = self.handler.with_name(f"{self.handler.stem}-1.0-py3-none-any.whl")
        with zipfile.ZipFile(made, "w") as archive:
            archive.write(self.handler, self.handler.name)
        self.handler.unlink()
        return made

    def noted(self) -> list[tuple[str, str]]:
        lines = [line for file in self._directory.iterdir() for line in file.read_text().splitlines(True)]
        return [(text, place) for text, place in (json.loads(line) for line in lines if line.endswith("\n"))]

    def messages(self) -> set[str]:
        return {text for text, _ in self.noted()}

    def hosts(self, cluster: SparkCluster) -> set[str]:
        places = {place for _, place in self.noted()}
        return {host for host in cluster.workers if any(f"/{host}/" in place for place in places)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), workers=2) as started:
        yield started


def send(client: Client, topic: str, first: int, count: int) -> None:
    numbers = range(first, first + count)
    client.send_many(topic, [Message(str(number), queue_id=number % 8) for number in numbers])
    await_dispatch(client)


def check_ledger(reader: LedgerReader, count: int) -> None:
    """One outcome for each message."""
    outcomes = reader.sql("SELECT queue_id, queue_offset, verdict FROM deliveries").to_pylist()
    assert Counter(row["verdict"] for row in outcomes) == {"ACK": count}
    assert len({(row["queue_id"], row["queue_offset"]) for row in outcomes}) == count
    for view in ("duplicate_deliveries", "delivery_gaps"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view


@pytest.mark.nightly
def test_a_group_runs_under_spark_submit(
    broker: BrokerProcess, cluster: SparkCluster, tmp_path: Path
) -> None:
    client, calls = broker.client(), Calls(tmp_path, "submitted")
    client.put_topic("invoices", read_queue_nums=8, write_queue_nums=8)
    send(client, "invoices", 0, 40)
    command = (
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--master", cluster.master, "--py-files", str(calls.wheel()), *ON_SMALL_EXECUTORS, *OF_DELTA),
        str(ROOT / "docs" / "deploy" / "consume.py"),
        *("--group", "submitted", "--topic", "invoices", "--endpoint", broker.endpoint, "--from", "earliest"),
        *("--handler", "submitted:handle", "--ledger", str(tmp_path / "ledger"), "--available-now"),
    )
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths}
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    check_ledger(LedgerReader(tmp_path / "ledger"), 40)
    assert calls.messages() == {str(number) for number in range(40)}
    assert calls.hosts(cluster)


@pytest.mark.nightly
def test_a_group_loses_an_executor_and_a_host_and_no_message(
    broker: BrokerProcess, cluster: SparkCluster, tmp_path: Path
) -> None:
    client, calls = broker.client(), Calls(tmp_path, "on_hosts")
    client.put_topic("orders", read_queue_nums=8, write_queue_nums=8)
    send(client, "orders", 0, FIRST)
    ledger = tmp_path / "ledger"

    def handled() -> int:
        return int(LedgerReader(ledger).sql("SELECT count(*) FROM deliveries").column(0)[0].as_py())

    arguments = (
        *("--group", "g", "--topic", "orders", "--endpoint", broker.endpoint, "--from", "earliest"),
        *("--handler", "on_hosts:handle", "--py-files", str(calls.handler), "--ledger", "ledger"),
        *("--master", cluster.master, *ON_SMALL_EXECUTORS),
        *("--trigger", "200ms", "--max-batch", "80", "--until-idle", "10s"),
    )
    first, second = cluster.workers
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.wait_for(lambda: calls.hosts(cluster) == {first, second})
        assert [len(cluster.executors(host)) for host in (first, second)] == [2, 2]
        before = len(calls.noted())
        os.kill(cluster.executors(second)[0], signal.SIGKILL)
        consumer.wait_for(lambda: len(calls.noted()) > before + 40)
        cluster.kill_worker(first)
        send(client, "orders", FIRST, THEN)
        consumer.wait_for(lambda: handled() == FIRST + THEN)
        assert consumer.wait() == 0, consumer.log()
    check_ledger(LedgerReader(ledger), FIRST + THEN)
    assert calls.messages() == {str(number) for number in range(FIRST + THEN)}
