"""Ctrl-C at `lakemq dlq replay --execute`: it says how far it came, and goes on when it is run again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.ledger_reader import LedgerReader
from tests.support.broker_process import BrokerProcess
from tests.support.ledger_rows import append, path_ledger
from tests.support.waiting import wait_until
from tests.unit.jobs.dlq.test_replay import letter

ROOT = Path(__file__).resolve().parents[2]
COUNT = 60


def test_an_interrupted_replay_says_what_was_sent_and_goes_on_when_it_is_run_again(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    append(path_ledger(ledger), DEAD_LETTERS, [letter(offset) for offset in range(COUNT)])
    command = [sys.executable, "-m", "lakemq.cli", "dlq", "replay", "--group", "g", "--ledger", str(ledger)]
    command += ["--endpoint", broker.endpoint, "--execute"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with broker.client() as client:
        client.put_group("g")

        def stored() -> int:
            return sum(queue.max_offset for queue in client.queues("%RETRY%g"))

        replay = subprocess.Popen(
            [*command, "--rate", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        wait_until(lambda: stored() >= 2 or replay.poll() is not None)
        replay.send_signal(signal.SIGINT)
        out, err = replay.communicate(timeout=60)
        assert (replay.returncode, out) == (130, "")
        said = re.fullmatch(
            r"lakemq: interrupted: (\d+) dead letters of group g are sent again \(replay (\w+)\); "
            r"the same command goes on with the others\n",
            err,
        )
        assert said, err
        (row,) = (
            LedgerReader(ledger)
            .sql("SELECT replay_id, count(*) AS rows FROM replays GROUP BY replay_id")
            .to_pylist()
        )
        assert (str(row["rows"]), row["replay_id"]) == said.groups()

        again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert again.stdout.startswith(f"{COUNT - row['rows']} dead letters of group g are sent again"), again
        assert stored() == COUNT
