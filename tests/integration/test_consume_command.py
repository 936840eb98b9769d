"""What `lakemq consume` shows a person: where a new group begins, one sentence when it fails, no stacks."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess, runs
from tests.support.dispatch_barrier import await_dispatch
from tests.support.held_handler import HeldHandler
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

NOISE = ("ivy", "log4j", "WARN", "incubator", "resolution report")
STACKS = ("BrokenPipeError", "Traceback", "\tat ", "ERROR", "StackOverflowError")


def topic_with(broker: BrokerProcess, name: str, count: int) -> None:
    client = broker.client()
    client.put_topic(name, read_queue_nums=1, write_queue_nums=1)
    client.send_many(name, [Message(str(n)) for n in range(count)])
    await_dispatch(client)


def sparks_page(shown: str, page: str) -> str:
    """One of the pages whose address the command has said."""
    (address,) = re.findall(r"^Spark's page is (http://127\.0\.0\.1:\d+)$", shown, re.MULTILINE)
    with urllib.request.urlopen(f"{address}/{page}/", timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.nightly
def test_group_beside_a_users_own_jobs_package_is_stopped_without_a_stack(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic_with(shared_broker, "beside", 5)
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "__init__.py").write_text("raise ImportError('a package of the user, not of LakeMQ')\n")
    (jobs / "mine.py").write_text(
        "import pathlib\n\n\ndef handle(message):\n    print('printed by the handler')\n"
        f"    with pathlib.Path({str(tmp_path / 'seen')!r}).open('a') as seen:\n"
        "        seen.write(message.body.decode() + '\\n')\n"
    )
    arguments = ("--group", "b", "--topic", "beside", "--handler", "jobs.mine:handle", "--spark-ui")
    with ConsumerProcess(tmp_path, *arguments, "--endpoint", shared_broker.endpoint) as consumer:
        consumer.await_started()
        assert "begins at the end; --from earliest reads what is there (5 messages)" in consumer.log()
        shared_broker.client().send("beside", "new")
        shared_broker.client().pull("beside", 0, 5, wait_ms=15_000)
        consumer.await_line(tmp_path / "seen")
        assert "b group" in sparks_page(consumer.shown, "StreamingQuery")
        consumer.terminate()
        assert consumer.wait() == 0, consumer.log()
    assert (tmp_path / "seen").read_text() == "new\n"
    for word in (*STACKS, *NOISE):
        assert word not in consumer.log() + consumer.shown, consumer.log() + consumer.shown
    assert "printed by the handler" in consumer.log()
    log = tmp_path / "ledger" / "_checkpoints" / "b" / "spark.log"
    assert f"Spark starts; its log is {log}" in consumer.shown
    assert "io.delta#" in log.read_text()


def test_ctrl_c_while_spark_starts_ends_without_a_stack(
    shared_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_with(shared_broker, "early", 1)
    (tmp_path / "none.py").write_text("def handle(message): pass\n")
    scratch = tmp_path / "scratch"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    arguments = ("--group", "e", "--topic", "early", "--handler", "none:handle")
    with ConsumerProcess(tmp_path, *arguments, "--endpoint", shared_broker.endpoint) as consumer:
        consumer.wait_for(lambda: any(scratch.glob("blockmgr-*")))  # Python waits for the JVM's session
        consumer.process.send_signal(signal.SIGINT)
        assert consumer.wait() == 130, consumer.log()
    assert consumer.log() == ""


def test_ctrl_c_before_the_jvm_has_answered_leaves_no_jvm(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic_with(shared_broker, "earlier", 1)
    (tmp_path / "none.py").write_text("def handle(message): pass\n")
    arguments = ("--group", "e2", "--topic", "earlier", "--handler", "none:handle")
    with ConsumerProcess(tmp_path, *arguments, "--endpoint", shared_broker.endpoint) as consumer:
        consumer.wait_for(lambda: bool(consumer.processes()))
        started = consumer.processes()
        consumer.process.send_signal(signal.SIGINT)
        assert consumer.wait() == 130, consumer.log()
        wait_until(lambda: not any(runs(pid) for pid in started))


def test_the_jvm_and_the_workers_of_a_command_that_is_killed_end_too(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic_with(shared_broker, "killed", 1)
    handler = HeldHandler(tmp_path, "held_when_killed")
    arguments = (
        "--group",
        "k",
        "--topic",
        "killed",
        "--handler",
        "held_when_killed:hold",
        "--from",
        "earliest",
    )
    with ConsumerProcess(tmp_path, *arguments, "--endpoint", shared_broker.endpoint) as consumer:
        consumer.wait_for(handler.handling.exists)
        left_alone = consumer.processes()
        assert len(left_alone) >= 3, "the JVM, its workers' parent, and the worker that handles"
        try:
            consumer.process.kill()
            wait_until(lambda: not any(runs(pid) for pid in left_alone))
        finally:
            for pid in filter(runs, left_alone):
                os.kill(pid, signal.SIGKILL)


def test_failed_stream_is_one_sentence_and_javas_stack_is_in_the_named_file(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    topic_with(shared_broker, "failing", 1)
    (tmp_path / "picky.py").write_text(
        "import sys\n\nif 'pyspark.daemon' in sys.modules:\n"
        "    raise RuntimeError('no licence on a worker')\n\n\ndef handle(message): pass\n"
    )
    arguments = ("--group", "f", "--topic", "failing", "--handler", "picky:handle", "--from", "earliest")
    with ConsumerProcess(tmp_path, *arguments, "--endpoint", shared_broker.endpoint) as consumer:
        assert consumer.wait() == 1, consumer.log()
    said = [line for line in consumer.log().splitlines() if line.startswith("lakemq: ")]
    assert len(said) == 1, consumer.log()
    log = tmp_path / "ledger" / "_checkpoints" / "f" / "spark.log"
    for part in ("group f", "no licence on a worker", "handler picky:handle", str(log)):
        assert part in said[0], said[0]
    for word in STACKS:
        assert word not in consumer.log(), consumer.log()
    assert "\tat " in log.read_text()
