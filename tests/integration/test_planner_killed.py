"""The process in which the source plans is killed (-9), as by a system short of memory, while a group runs.

Contract: the group goes on by itself: each message is acknowledged once in the ledger, without gap or
duplicate, and a stop ends it with 0.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from delta_tables.ledger_reader import LedgerReader
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

HANDLER = "def handle(message):\n    pass\n"
KILLS = 3
MESSAGES = 40


def planner_of(consumer: ConsumerProcess) -> int:
    """The process of a group in which its source plans."""
    (planner,) = (pid for pid in consumer.processes() if b"python_streaming_source_runner" in _command(pid))
    return planner


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def test_a_group_whose_source_plans_no_more_goes_on(broker: BrokerProcess, tmp_path: Path) -> None:
    client = broker.client()
    client.put_topic("orders", read_queue_nums=2, write_queue_nums=2)
    (tmp_path / "planned.py").write_text(HANDLER)
    arguments = (
        *("--group", "g", "--topic", "orders", "--handler", "planned:handle", "--ledger", "ledger"),
        *("--endpoint", broker.endpoint, "--from", "earliest", "--trigger", "200ms"),
    )

    def are_acknowledged(messages: int) -> bool:
        found = LedgerReader(tmp_path / "ledger").sql("SELECT count(*) FROM deliveries WHERE verdict = 'ACK'")
        return int(found.column(0)[0].as_py()) >= messages

    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.await_started()
        for kill in range(KILLS):
            client.send_many("orders", [Message(str(n)) for n in range(MESSAGES)])
            await_dispatch(client)
            consumer.wait_for(partial(are_acknowledged, (2 * kill + 1) * MESSAGES))
            os.kill(planner_of(consumer), signal.SIGKILL)
            client.send_many("orders", [Message(str(n)) for n in range(MESSAGES)])
            consumer.wait_for(partial(are_acknowledged, (2 * kill + 2) * MESSAGES))
        consumer.terminate()
        assert consumer.wait() == 0, consumer.log()
    assert consumer.log().count("Spark's Python process ended: the stream is started again") == KILLS
    ledger = LedgerReader(tmp_path / "ledger")
    verdicts = ledger.sql("SELECT verdict, count(*) AS n FROM deliveries GROUP BY verdict").to_pylist()
    assert verdicts == [{"verdict": "ACK", "n": 2 * KILLS * MESSAGES}]
    assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0
    assert ledger.sql("SELECT * FROM delivery_gaps").num_rows == 0
