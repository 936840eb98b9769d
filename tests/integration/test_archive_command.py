"""What `lakemq archive` shows a person: no stack, and one sentence when it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delta_tables.ledger_reader import LedgerReader
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.lineage_receiver import LineageReceiver, datasets, lineage_receiver

pytestmark = pytest.mark.long

STACKS = ("BrokenPipeError", "Traceback", "\tat ", "ERROR", "StackOverflowError")


@pytest.fixture
def lineage(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageReceiver]:
    with lineage_receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.endpoint)
        yield receiver


def archive(broker: BrokerProcess, directory: Path, topic: str) -> subprocess.CompletedProcess[str]:
    """Runs the command once over what a topic holds; no stack is shown, whatever happens."""
    command = [sys.executable, "-m", "lakemq.cli", "archive", "--once", "--endpoint", broker.endpoint]
    ended = subprocess.run(
        [*command, "--topic", topic], cwd=directory, capture_output=True, text=True, timeout=300
    )
    for word in STACKS:
        assert word not in ended.stderr, ended.stderr
    return ended


def test_archive_lands_a_topic_and_a_failure_is_one_sentence_with_the_stack_in_the_named_file(
    shared_broker: BrokerProcess,
    tmp_path: Path,
    lineage: LineageReceiver,
) -> None:
    client = shared_broker.client()
    client.put_topic("kept", read_queue_nums=1, write_queue_nums=1)
    client.send("kept", "one")
    await_dispatch(client)
    landed = archive(shared_broker, tmp_path, "kept")
    assert landed.returncode == 0, landed.stderr
    said = landed.stdout.splitlines()
    ledger = tmp_path / "ledger"
    assert said[-2] == f"kept: 1 message landed in messages of {ledger}"
    query = 'lakemq sql "SELECT topic, count(*) FROM messages GROUP BY topic"'
    assert said[-1] == f"{query} --ledger {ledger} says what is there"
    assert LedgerReader(tmp_path / "ledger").sql("SELECT * FROM messages").num_rows == 1
    at = f"lakemq://{shared_broker.endpoint.removeprefix('http://')}"
    assert lineage.states == ["START", "COMPLETE"]
    for told in lineage.events:
        assert told["job"]["name"] == f"archive.{ledger}"
        assert datasets(told, "inputs") == [(at, "kept")]
        assert datasets(told, "outputs") == [("file", str(ledger / "messages"))]

    checkpoint = tmp_path / "again" / "ledger" / "_checkpoints" / "archive"
    checkpoint.mkdir(parents=True)
    (checkpoint / "lakemq-start.json").write_text(json.dumps({"offsets": {"kept": {"0": 99}}}))
    failed = archive(shared_broker, tmp_path / "again", "kept")
    assert failed.returncode == 1, failed.stderr
    said = [line for line in failed.stderr.splitlines() if line.startswith("lakemq: ")]
    assert len(said) == 1, failed.stderr
    log = checkpoint / "spark.log"
    for part in ("archive of kept", "queue 0 ends at 1, before 99", str(log)):
        assert part in said[0], said[0]
    assert "\tat " in log.read_text()
    assert lineage.states[2:] == ["START", "FAIL"]
    reason = lineage.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert reason.removeprefix("SYSTEM_ERROR: ") in said[0]
