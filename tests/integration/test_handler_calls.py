"""How often a handler is called when a call ends or holds its worker, in a session as commands make it.

There a task is tried four times, as on a cluster: each try calls the handler with what the task has.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.test_handler_host import post, rows
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess

HEALTHY = [f"healthy-{n}" for n in range(20)]
LATER = [f"later-{n}" for n in range(20)]
HANDLER = """
import os, pathlib, threading

def handle(message):
    with (pathlib.Path(__file__).parent / "calls").open("a") as calls:
        calls.write(message.text + "\\n")
    if message.text == "exit":
        os._exit(7)
    if message.text == "hang":
        threading.Event().wait()
"""


@pytest.mark.long
def test_a_message_is_called_once_more_at_most_for_each_death(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "noting.py").write_text(HANDLER)
    arguments = (
        *("--group", "n", "--topic", "noted", "--from", "earliest", "--handler", "noting:handle"),
        *("--endpoint", broker.endpoint, "--trigger", "100ms", "--concurrency", "4"),
        *("--max-reconsume-times", "0", "--consume-timeout", "2s"),
    )

    def handled() -> int:
        return len(rows(tmp_path / "ledger", "SELECT attempt FROM deliveries"))

    post(broker, "noted", [*HEALTHY, "hang"])
    with ConsumerProcess(tmp_path, *arguments) as consumer:
        consumer.await_started()
        consumer.wait_for(lambda: handled() == len(HEALTHY) + 1)
        post(broker, "noted", [*LATER, "exit"])
        consumer.wait_for(lambda: handled() == len(HEALTHY) + len(LATER) + 2)
        consumer.terminate()
        assert consumer.wait() == 0, consumer.log()
    found = rows(tmp_path / "ledger", "SELECT attempt, verdict, reason FROM deliveries")
    assert Counter(tuple(row.values()) for row in found) == {
        (1, "ACK", None): len(HEALTHY) + len(LATER),
        (1, "DEAD", "worker died (exit status 7)"): 1,
        (1, "DEAD", "the handler did not return within 2 s (consume timeout)"): 1,
    }
    calls = Counter((tmp_path / "calls").read_text().split())
    # It holds Spark's worker, which is ended, and then the process of the handler's own: two deaths.
    assert calls["hang"] == 2, calls
    assert max(calls[message] for message in HEALTHY) <= 1 + 2, calls
    # From here on the handler has its own process: it dies beside others, then alone.
    assert calls["exit"] <= 2, calls
    assert max(calls[message] for message in LATER) <= 1 + 1, calls
