"""How a producer ends: closed, given up, dropped, or with its program."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import threading
import weakref

import pytest

from lakemq import Producer
from lakemq.client import Closed, OutcomeUnknown
from tests.support.producers import FOR_EVER_MS, bodies, producer_of
from tests.support.scripted_network import ScriptedNetwork
from tests.support.turns import Turns
from tests.support.waiting import wait_until


def test_a_program_that_ends_without_close_sends_what_it_put() -> None:
    code = """
from lakemq import Producer
from tests.support.scripted_network import ScriptedNetwork
class Saying(ScriptedNetwork):
    def urlopen(self, method, url, **request):
        print(request["body"].decode(), end="", flush=True)
        return super().urlopen(method, url, **request)
network = Saying()
network.decide_all("answered")
Producer(network.client(), "t", linger_ms=3_600_000).send_later("promised")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["body"] == "promised"


def test_a_program_that_ends_in_front_of_a_broker_that_hangs_says_what_it_did_not_send() -> None:
    code = """
import socket
from lakemq import Producer
hangs = socket.create_server(("127.0.0.1", 0))
endpoint = "http://127.0.0.1:%d" % hangs.getsockname()[1]
print(endpoint)
producer = Producer(endpoint, "t", batch_bytes=1, timeout_s=0.5)
for number in range(3):
    producer.send_later(str(number))
producer.send_later("y", topic="u")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    ended = f"at {done.stdout.strip()}; the program ended without Producer.close(): "
    said = [line.partition(ended)[::2] for line in done.stderr.splitlines()]
    assert [what for what, _ in said] == [
        "perhaps not stored: 1 message for topic t ",
        "not sent: 2 messages for topic t ",
        "not sent: 1 message for topic u ",
    ]
    assert [re.split(":| ", why)[0] for _, why in said] == ["OUTCOME_UNKNOWN", *["SERVICE_NOT_AVAILABLE"] * 2]


def test_a_program_that_ends_says_of_a_producer_that_was_dropped_what_it_did_not_send() -> None:
    code = """
import socket, warnings
from lakemq import Producer
hangs = socket.create_server(("127.0.0.1", 0))
endpoint = "http://127.0.0.1:%d" % hangs.getsockname()[1]
producer = Producer(endpoint, "t", linger_ms=3_600_000, timeout_s=0.5)
producer.send_later("x")
del producer
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.startswith("perhaps not stored: 1 message for topic t at http://127.0.0.1:")


def test_producers_that_are_dropped_send_what_they_have_and_leave_no_thread() -> None:
    network = ScriptedNetwork()
    network.decide_all("answered")
    before = threading.active_count()

    def drop() -> None:
        for number in range(100):
            Producer(network.client(), "t").send_later(str(number))
        wait_until(lambda: threading.active_count() == before)

    with pytest.warns(ResourceWarning, match=r"unclosed <lakemq\.producer\.Producer") as warned:
        drop()
    assert sorted(bodies(network.stored["t"]), key=int) == [str(number) for number in range(100)]
    assert len(warned) == 100


def test_a_dropped_producer_sends_what_lingers_before_its_thread_ends(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    producer = producer_of(turns, network.client(), linger_ms=100)
    producer._owns_client = True  # noqa: SLF001 - as one it made itself, which would have a real network
    future = producer.send_later("x")
    gone = weakref.ref(producer)
    del producer
    assert gone() is None, "threads do not hold it"
    turns.settle()
    assert not future.done()
    with pytest.warns(ResourceWarning, match="unclosed"):
        turns.pass_time(0.1)
    assert future.result(0).queue_offset == 0
    assert not any(thread.is_alive() for thread in turns.threads)
    assert network.closed


def test_a_dropped_producer_with_nothing_to_send_is_named_where_it_was_dropped(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    producer = producer_of(turns, network.client(), linger_ms=0)
    assert turns.result(producer.send_later("x")).queue_offset == 0
    with pytest.warns(ResourceWarning, match="unclosed") as warned:
        del producer
    assert [one.filename for one in warned] == [__file__]
    turns.settle()
    assert not any(thread.is_alive() for thread in turns.threads)


def test_a_closed_producer_is_forgotten_and_closes_only_a_client_of_its_own(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    shared = network.client()
    producer = producer_of(turns, shared)
    future = producer.send_later("x")
    producer.close()
    assert future.result(0).queue_offset == 0
    assert not network.closed
    for send in (producer.send, producer.send_later):
        with pytest.raises(Closed) as refused:
            send("late")
        assert refused.value.code == "PRODUCER_CLOSED"
    del refused
    gone = weakref.ref(producer)
    del producer, send
    gc.collect()
    assert gone() is None
    own = Producer("http://127.0.0.1:1", "t")
    assert own._client.endpoint == "http://127.0.0.1:1"  # noqa: SLF001 - nobody else has it
    assert own._client.call_timeout_s == 3.0  # noqa: SLF001
    own.close()
    with pytest.raises(Closed, match="CLIENT_CLOSED"):
        own._client.queues("t")  # noqa: SLF001
    patient = Producer("http://127.0.0.1:1", "t", timeout_s=7.0)
    assert patient._client.call_timeout_s == 7.0  # noqa: SLF001


def test_a_close_that_gives_up_says_of_each_message_what_became_of_it(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0)
    in_flight = producer.send_later("in flight")
    request = network.arrived()
    unsent = producer.send_later("unsent")
    producer.close(0)
    unknown, closed = in_flight.exception(0), unsent.exception(0)
    assert isinstance(unknown, OutcomeUnknown)
    assert "no answer yet after 0 s" in unknown.detail
    assert isinstance(closed, Closed)
    assert closed.code == "PRODUCER_CLOSED"
    assert "within 0 s" in closed.detail
    network.decide_all("answered", request)
    turns.settle()
    assert bodies(network.stored["t"]) == ["in flight"]
    lingers = producer_of(turns, network.client(), linger_ms=FOR_EVER_MS)
    of_nobody = lingers.send_later("x")
    lingers.close(0)
    assert isinstance(of_nobody.exception(0), Closed)
