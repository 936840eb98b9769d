"""Spark's Python workers, and the processes beside them, are killed (-9) as by a system short of memory.

Contract: each message is acknowledged once in the ledger, without gap or duplicate, and none is given up: one
whose process was killed did nothing wrong. LAKEMQ_KILL_ROUNDS sets the number of kills (default 6;
`make chaos ONLY=WORKERS ROUNDS=20`).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest

from delta_tables.ledger_reader import LedgerReader
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

KILLS = int(os.environ.get("LAKEMQ_KILL_ROUNDS", "6"))
MESSAGES = 300
"""Behind each kill."""
HANDLER = """
import os
import threading
from pathlib import Path

def handle(message):
    with (Path(__file__).parent / "calls").open("a") as calls:
        calls.write(f"{os.getpid()} {os.getppid()}\\n")
    threading.Event().wait(0.1)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_workers_that_are_killed_lose_no_message_and_give_none_up(
    broker: BrokerProcess, tmp_path: Path, isolation: str
) -> None:
    chance = random.Random(isolation)
    client = broker.client()
    client.put_topic("orders", read_queue_nums=4, write_queue_nums=4)
    (tmp_path / "killed_workers.py").write_text(HANDLER)
    arguments = (
        *("--group", "g", "--topic", "orders", "--handler", "killed_workers:handle", "--ledger", "ledger"),
        *("--endpoint", broker.endpoint, "--from", "earliest", "--trigger", "200ms", "--retry-delays", "1s"),
        *("--max-batch", str(MESSAGES), "--isolation", isolation),
    )

    def calls() -> list[str]:
        file = tmp_path / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def are_acknowledged(messages: int) -> bool:
        found = LedgerReader(tmp_path / "ledger").sql("SELECT count(*) FROM deliveries WHERE verdict = 'ACK'")
        return int(found.column(0)[0].as_py()) >= messages

    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.await_started()
        for first in range(0, KILLS * MESSAGES, MESSAGES):
            client.send_many("orders", [Message(str(n)) for n in range(first, first + MESSAGES)])
            await_dispatch(client)
            some = len(calls()) + chance.randrange(1, MESSAGES)
            consumer.wait_for(partial(lambda wanted: len(calls()) >= wanted, some))
            # In a process beside it the handler's parent is Spark's worker, else that is the workers' daemon.
            of_the_call = [int(pid) for pid in calls()[-1].split()][: 1 if isolation == "thread" else 2]
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(of_the_call), signal.SIGKILL)
            consumer.wait_for(partial(are_acknowledged, first + MESSAGES))
        consumer.terminate()
        assert consumer.wait() == 0, consumer.log()
    posted = KILLS * MESSAGES
    ledger = LedgerReader(tmp_path / "ledger")
    verdicts = ledger.sql(
        "SELECT verdict, count(*) AS n FROM deliveries WHERE verdict <> 'RETRY' GROUP BY verdict"
    )
    assert verdicts.to_pylist() == [{"verdict": "ACK", "n": posted}]
    assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0
    assert ledger.sql("SELECT * FROM delivery_gaps").num_rows == 0
