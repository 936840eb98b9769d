"""`lakemq group status`: a group that failed at something, is behind, and whose broker goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.consume import consume
from lakemq import Message
from lakemq.cli.app import main
from tests.support.available_runs import available_now
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch

ROOT = str(Path(__file__).resolve().parents[2])

HANDLER = """
from lakemq.handler import Verdict

def handle(message):
    if message.text == "later":
        raise ValueError("not yet")
    if message.text == "never":
        return Verdict.dead("no use")
"""


def test_status_is_the_brokers_and_the_ledgers(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "status_handlers.py").write_text(HANDLER)
    ledger = tmp_path / "ledger"
    more = {"endpoint": broker.endpoint, "retry_delays": "2h"}
    settings = available_now("watched", "status_handlers:handle", tmp_path, **more)
    with broker.client() as client:
        client.put_topic("watched", read_queue_nums=2, write_queue_nums=2)
        client.send_many("watched", [Message(text) for text in ("a", "later", "never", "b")])
        await_dispatch(client)
        consume(settings, lambda: spark)
        before_ms = time.time() * 1000
        client.send_many("watched", [Message(text) for text in "cdefg"])
        await_dispatch(client)
    command = ["group", "status", "watched", "--ledger", str(ledger), "--endpoint", broker.endpoint]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["lag"] == 5
    assert 0 <= said["lag_s"] <= (time.time() * 1000 - before_ms) / 1000
    assert (said["pending_retries"], said["due_retries"], said["dead_letters"]) == (1, 0, 1)
    assert said["rate_per_s"] == pytest.approx(4 / 60) or said["rate_per_s"] == 0  # a minute is over
    assert said["last_batch"]["messages"] == 4
    assert said["last_batch"]["seconds"] > 0
    assert said["last_error"]["error"] in ("not yet", "no use")
    (topic,) = said["handling"]
    assert (topic["topic"], topic["attempts"], topic["failed"]) == ("watched", 4, 2)

    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "5 messages, the oldest" in shown
    assert "1 wait, 0 of them are due" in shown
    assert "The handler in the last hour:" in shown

    watched = [sys.executable, "-m", "lakemq.cli", *command, "--json", "--watch", "10ms"]
    with subprocess.Popen(watched, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ROOT}) as watching:
        assert watching.stdout is not None
        lines = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
    assert [line["lag"] for line in lines] == [5, 5]
    assert lines[0]["at"] < lines[1]["at"]
    assert watching.returncode == 130

    with broker.client() as client:
        client.delete_group("watched")
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "1 wait, 0 of them are due" in captured.out, "the ledger has it all the same"
    assert "without the broker: GROUP_NOT_EXIST" in captured.err

    broker.kill()
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "not known; the last batches reported 0 messages" in captured.out
    assert "without the broker" in captured.err
    typo = ["group", "status", "wached", *command[3:]]
    assert main(typo) == 1, "neither the ledger nor a broker says that there is such a group"
    assert not capsys.readouterr().out
