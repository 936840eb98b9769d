"""The threads of a producer: as many as there is to send at a time, none that stays, none that holds it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
import weakref
from typing import Any

import pytest

from lakemq.client.routes import REFRESH_S
from lakemq.producer import MOST_SENDERS
from tests.support.producers import FOR_EVER_MS, bodies, client_of_two, producer_of
from tests.support.scripted_endpoints import A, B, Endpoints
from tests.support.scripted_network import ScriptedNetwork
from tests.support.turns import Turns


def senders(turns: Turns) -> int:
    """How many threads of producers there are."""
    return sum(thread.name == "lakemq-producer" and thread.is_alive() for thread in turns.threads)


def of_two(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> tuple[ScriptedNetwork, Any]:
    """Two brokers that hold topic t; a sharding key is the name of its lane."""
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(network, monkeypatch, endpoints)
    monkeypatch.setattr(client, "known_lane", lambda topic, sharding_key: sharding_key)
    return network, client


def test_a_message_put_while_another_brokers_batch_hangs_goes_at_once(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, client = of_two(turns, monkeypatch)
    with producer_of(turns, client, linger_ms=0) as producer:
        hung = producer.send_later("hung", sharding_key="hangs")
        hangs = network.arrived()
        other = producer.send_later("other", sharding_key="answers")
        network.arrived().fate.put("answered")
        assert turns.result(other).status == "SEND_OK"
        assert not hung.done()
        hangs.fate.put("answered")


def test_there_are_no_more_threads_than_batches_may_be_on_their_way(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, client = of_two(turns, monkeypatch)
    with producer_of(turns, client, linger_ms=0) as producer:
        futures = [producer.send_later("x", sharding_key=f"{lane}") for lane in range(MOST_SENDERS + 2)]
        requests = [network.arrived() for _ in range(MOST_SENDERS)]
        assert network.is_idle()
        assert senders(turns) == MOST_SENDERS
        for request in requests:
            network.decide_all("answered", request)
        assert all(turns.result(future).status == "SEND_OK" for future in futures)


def test_a_thread_that_has_nothing_to_send_is_used_before_another_is_begun(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, client = of_two(turns, monkeypatch)
    with producer_of(turns, client, linger_ms=0) as producer:
        for _ in range(3):
            for lane in ("one", "two"):
                producer.send_later("x", sharding_key=lane)
            for request in (network.arrived(), network.arrived()):
                request.fate.put("answered")
            turns.settle()
            assert senders(turns) == 2
        for lane in ("one", "two", "three"):
            alone = producer.send_later("x", sharding_key=lane)
            network.arrived().fate.put("answered")
            assert turns.result(alone).status == "SEND_OK"
        assert senders(turns) == 2
        network.decide_all("answered")


def test_threads_that_wait_are_told_when_it_is_known_whose_the_messages_are(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics |= {"t": ["a", "b"], "u": ["a", "b"]}
    client = client_of_two(network, monkeypatch, endpoints)
    names = {client.lane("t", f"{number}"): f"{number}" for number in range(8)}
    with producer_of(turns, client, linger_ms=0, batch_bytes=1, retry_until=60.0) as producer:
        known = [producer.send_later("x", sharding_key=key) for key in names.values()]
        for request in (network.arrived(), network.arrived()):
            request.fate.put("answered")
        assert [turns.result(future).topic for future in known] == ["t", "t"]
        endpoints.down = {A, B}
        for body in ("a1", "a2", "b1"):
            producer.send_later(body, topic="u", sharding_key=names[body[0]])
        turns.settle()
        assert network.is_idle(), "nobody says whose they are"
        endpoints.down = set()
        endpoints.now += REFRESH_S
        turns.pass_time(1.0)
        requests = {bodies(request.lines)[0]: request for request in (network.arrived(), network.arrived())}
        assert requests.keys() == {"a1", "b1"}, "b1 does not wait for the answer to a1"
        assert senders(turns) == 2
        for request in requests.values():
            network.decide_all("answered", request)


def test_a_client_of_its_own_is_open_until_the_last_thread_has_its_answer(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = of_two(turns, monkeypatch)
    network = ScriptedNetwork(turns)
    for name in ("send_ndjson", "close"):
        monkeypatch.setattr(client, name, getattr(network.client(), name))
    producer = producer_of(turns, client, linger_ms=0)
    producer._owns_client = True  # noqa: SLF001 - as one it made itself, which would have a real network
    futures = [producer.send_later("x", sharding_key=lane) for lane in ("one", "two")]
    futures[0].add_done_callback(lambda _: producer.close())
    first, second = network.arrived(), network.arrived()
    first.fate.put("answered")
    turns.settle()
    assert futures[0].done()
    assert not network.closed
    second.fate.put("answered")
    assert turns.result(futures[1]).status == "SEND_OK"
    assert network.closed


def test_a_close_that_gives_up_leaves_nothing_open(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0)
    producer._owns_client = True  # noqa: SLF001 - as one it made itself, which would have a real network
    producer.send_later("in flight")
    request = network.arrived()
    producer.close(0)
    assert network.closed, "whether the broker ever answers or not"
    network.decide_all("answered", request)
    turns.settle()


class _Refusing:
    """A thread that the system does not give."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_without_a_thread_a_message_is_not_taken_and_the_next_one_is_sent(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    producer = producer_of(turns, network.client(), linger_ms=0)
    producer._owns_client = True  # noqa: SLF001 - as one it made itself, which would have a real network
    with monkeypatch.context() as without_threads:
        without_threads.setattr(turns, "Thread", lambda **_: _Refusing())
        with pytest.raises(RuntimeError, match="can't start new thread"):
            producer.send_later("not taken")
    future = producer.send_later("x")
    future.add_done_callback(lambda _: producer.close())
    assert turns.result(future).queue_offset == 0
    assert bodies(network.stored["t"]) == ["x"]
    assert network.closed, "by the thread, as the last one"


def test_what_was_sent_is_held_by_nobody(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    producer = producer_of(turns, network.client(), linger_ms=0)
    future = producer.send_later("x")
    assert turns.result(future).queue_offset == 0
    gone = weakref.ref(future)
    del future
    gc.collect()
    assert gone() is None
    producer.close()


def test_a_closed_producers_client_is_held_by_nobody(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    client = network.client()
    with producer_of(turns, client, linger_ms=0) as producer:
        assert turns.result(producer.send_later("x")).queue_offset == 0
    gone = weakref.ref(client)
    del client, producer
    gc.collect()
    assert gone() is None, "nor is anything left to do at the end of the program"


def test_a_producer_that_was_given_nothing_may_be_dropped(turns: Turns) -> None:
    producer = producer_of(turns, ScriptedNetwork(turns).client(), linger_ms=FOR_EVER_MS)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert not [one for one in warned if "unclosed" in str(one.message)]


def test_a_forked_process_has_nothing_of_its_parents_to_send_and_sends_its_own() -> None:
    code = """
import os, sys
from lakemq import Producer
from tests.support.scripted_network import ScriptedNetwork
network = ScriptedNetwork()
network.decide_all("answered")
producer = Producer(network.client(), "t", linger_ms=3_600_000)
before = producer.send_later("before")
child = os.fork()
producer.send_later("after")
producer.close()
sys.stdout.buffer.write(b"".join(line + b"\\n" for line in network.stored["t"]))
sys.stdout.flush()
if child:
    assert before.result(0).queue_offset == 0
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line)["body"] for line in done.stdout.splitlines()]
    assert sorted(sent) == ["after", "after", "before"]
