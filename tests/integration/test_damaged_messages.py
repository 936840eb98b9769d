"""A damaged message is reported to every reader that passes it: as a field, on stderr, by the exit code."""

from __future__ import annotations

import subprocess
import sys

from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch

BODIES = [f"body-of-message-{number}" for number in range(5)]


def test_pull_and_tail_name_the_offsets_they_leave_out(broker: BrokerProcess) -> None:
    client = broker.client()
    client.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
    client.send_many("orders", [Message(body) for body in BODIES])
    await_dispatch(client)
    broker.stop()
    flip_a_bit_of(broker, BODIES[2].encode())
    broker.start()

    pulled = client.pull("orders", 0, 0)
    assert [message.text for message in pulled.messages] == [*BODIES[:2], *BODIES[3:]]
    assert pulled.damaged == client.pull_arrow("orders", 0, 0).damaged == ((2, 3),)
    assert pulled.next_offset == 5

    for options in ((), ("-n", "5")):
        tail = subprocess.run(
            [sys.executable, "-m", "lakemq.cli", "tail", "orders", "--endpoint", broker.endpoint, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert tail.returncode == 1
        assert "orders queue 0: offsets [2, 3) are damaged in the store" in tail.stderr
        assert [line.rsplit(maxsplit=1)[-1] for line in tail.stdout.splitlines()] == [
            *BODIES[:2],
            *BODIES[3:],
        ]


def flip_a_bit_of(broker: BrokerProcess, body: bytes) -> None:
    for file in (broker.store_path / "commitlog").iterdir():
        content = file.read_bytes()
        at = content.find(body)
        if at >= 0:
            with file.open("r+b") as log:
                log.seek(at)
                log.write(bytes([content[at] ^ 1]))
            return
    raise AssertionError("the message is in no file of the log")
