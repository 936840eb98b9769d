"""The producer's edges: time, the end of the program, whose client it is, callbacks that use it.

The order, the bound, the keys and the end of every future are in test_producer_rules.py.
"""

from __future__ import annotations

import atexit
import gc
import json
import re
import subprocess
import sys
import threading
import weakref
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, cast

import pytest

from lakemq import Message, Producer
from lakemq.client import Client, Closed, InvalidRequest, MessageQueue, OutcomeUnknown, Unavailable
from lakemq.client.cluster import Cluster
from lakemq.client.routes import ASK_TIMEOUT_S, REFRESH_S
from store_native.sharding import in_order, of_sharding_key
from tests.support.scripted_endpoints import A, B, Endpoints
from tests.support.scripted_network import Fate, ScriptedNetwork
from tests.support.turns import Turns
from tests.support.waiting import wait_until

FOR_EVER_MS = 3_600_000
REPEATED: list[Fate] = ["busy", "busy", "answered"]


def bodies(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["body"] for line in lines]


@pytest.fixture
def turns() -> Iterator[Turns]:
    with Turns() as turns:
        yield turns


def producer_of(turns: Turns, client: Client, **options: Any) -> Producer:
    return Producer(client, "t", clock=turns.clock, threads=turns, **options)


def in_callback(future: Future[Any], function: Callable[[], Any]) -> list[Any]:
    """What a function that the future's callback calls returns or raises, when it has."""
    came: list[Any] = []

    def call(_: object) -> None:
        try:
            came.append(function())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            came.append(error)

    future.add_done_callback(call)
    return came


def client_of_two(
    network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch, endpoints: Endpoints | None = None
) -> Client:
    """The client of brokers a and b; the requests of both come to one network."""
    endpoints = endpoints or Endpoints()
    client = Client([A, B], retries=0)
    settings = {"timeout_s": 30.0, "retries": 0, "pool_size": 1, "retry_until": None}
    cluster = Cluster((A, B), settings, lambda transport: network.client(retries=0))
    cluster.routes = endpoints.routes(A, B)
    monkeypatch.setattr(client, "_cluster", cluster)
    return client


def test_a_message_lingers_for_company_and_no_longer(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(), linger_ms=100) as producer:
        producer.send_later("first")
        turns.pass_time(0.0625)
        producer.send_later("company")
        turns.pass_time(0.0312)
        assert network.is_idle()
        turns.pass_time(0.0063)
        request = network.arrived()
        assert bodies(request.lines) == ["first", "company"]
        late = producer.send_later("late")
        network.decide_all("answered", request)
        turns.settle()
        assert not late.done()
        turns.pass_time(0.1)
        assert late.result(0).queue_offset == 2


def test_a_message_does_not_linger_after_a_flush_of_others(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(), linger_ms=FOR_EVER_MS) as producer:
        producer.send_later("flushed")
        flushing = turns.submit(producer.flush)
        request = network.arrived()
        assert not flushing.done()
        network.decide_all("answered", request)
        turns.result(flushing)
        lingers = producer.send_later("lingers")
        with pytest.raises(TimeoutError, match="1 messages"):
            producer.flush(0)
        assert turns.result(lingers).queue_offset == 1, "a flush that gave up still sends"


def test_a_flush_waits_for_each_lane_also_when_later_messages_went_before(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ScriptedNetwork(turns)
    client = network.client()
    monkeypatch.setattr(client, "known_lane", lambda topic, sharding_key: sharding_key)
    with producer_of(turns, client, linger_ms=FOR_EVER_MS) as producer:
        futures = [producer.send_later(f"{key}1", sharding_key=key) for key in "ab"]
        flushing = turns.submit(producer.flush)
        first = network.arrived()
        assert bodies(first.lines) == ["a1"]
        later = [producer.send_later(f"{key}2", sharding_key=key) for key in "ab"]
        first.fate.put("answered")
        second = network.arrived()
        assert bodies(second.lines) == ["b1", "b2"]
        assert not flushing.done()
        second.fate.put("answered")
        turns.result(flushing)
        assert [future.done() for future in (*futures, *later)] == [True, True, False, True]
        network.decide_all("answered")


def test_a_flush_and_a_close_that_may_wait_give_up_when_their_time_is_over(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(), linger_ms=0) as producer:
        sending = producer.send_later("x")
        flushing = turns.submit(producer.flush, 5.0)
        closing = turns.submit(producer.close, 7.0)
        request = network.arrived()
        turns.pass_time(4.5)
        assert not flushing.done()
        turns.pass_time(0.5)
        assert isinstance(turns.error(flushing), TimeoutError)
        turns.pass_time(1.5)
        assert not closing.done()
        turns.pass_time(0.5)
        turns.result(closing)
        assert isinstance(sending.exception(0), OutcomeUnknown)
        network.decide_all("answered", request)


def test_a_send_carries_a_key_of_its_own_or_the_callers(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(retries=1), linger_ms=0) as producer:
        keys = []
        for given in (None, None, "mine"):
            sending = turns.submit(producer.send, "x", idempotency_key=given)
            first = network.arrived()
            first.fate.put("lost")
            repeat = network.arrived()
            repeat.fate.put("answered")
            assert repeat.key == first.key
            keys.append(first.key)
            assert turns.result(sending).duplicate
        assert None not in keys
        assert keys[2] == "mine"
        assert len(set(keys)) == 3


def test_a_send_is_repeated_until_its_own_time_or_else_the_producers(turns: Turns) -> None:
    network = ScriptedNetwork(turns)

    def producing(until: float | None) -> Producer:
        return producer_of(turns, network.client(retries=0), linger_ms=0, retry_until=until)

    for of_all, own in ((None, 60.0), (60.0, None), (1e-6, 60.0)):
        with producing(of_all) as producer:
            sending = turns.submit(producer.send, "x", retry_until=own)
            for fate in REPEATED:
                network.arrived().fate.put(fate)
            assert turns.result(sending).topic == "t"
    for of_all, own in ((None, None), (60.0, 1e-6)):
        with producing(of_all) as producer:
            sending = turns.submit(producer.send, "x", retry_until=own)
            network.arrived().fate.put("busy")
            assert isinstance(turns.error(sending), Unavailable)
    with producing(60.0) as producer:
        later = producer.send_later("x")
        for fate in REPEATED:
            network.arrived().fate.put(fate)
        assert turns.result(later).topic == "t"


def test_what_fits_exactly_does_not_wait(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    line = len(Message("x").to_line())
    options = {"linger_ms": FOR_EVER_MS, "max_pending_bytes": 2 * line}
    with producer_of(turns, network.client(), **options) as producer:
        for _ in range(2):
            producer.send_later("x")
        network.decide_all("answered")


def test_a_message_larger_than_the_buffer_is_sent_and_the_next_waits_for_it(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    options = {"linger_ms": FOR_EVER_MS, "max_pending_bytes": 50}
    with producer_of(turns, network.client(), **options) as producer:
        large = producer.send_later("x" * 100)
        next_one = turns.submit(producer.send_later, "y")
        turns.settle()
        assert not next_one.done()
        with pytest.raises(TimeoutError):
            producer.flush(0)
        request = network.arrived()
        assert bodies(request.lines) == ["x" * 100]
        turns.result(next_one)
        network.decide_all("answered", request)
        assert turns.result(large).queue_offset == 0


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
    del producer
    turns.settle()
    assert not future.done()
    with pytest.warns(ResourceWarning, match="unclosed"):
        turns.pass_time(0.1)
    assert future.result(0).queue_offset == 0
    assert not any(thread.is_alive() for thread in turns.threads)
    assert network.closed


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


def test_a_callback_that_closes_the_producer_does_not_lose_what_waits(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, batch_bytes=1)
    producer._owns_client = True  # noqa: SLF001 - as one it made itself, which would have a real network
    first = producer.send_later("first")
    request = network.arrived()
    first.add_done_callback(lambda _: producer.close())
    second = producer.send_later("second")
    network.decide_all("answered", request)
    assert turns.result(second).queue_offset == 1
    assert network.closed, "by the sender, since nobody else waits for its end"
    producer.close()


@pytest.mark.parametrize("ends", [SystemExit(3), KeyboardInterrupt(), CancelledError(), GeneratorExit()])
def test_a_callback_that_ends_its_program_does_not_end_the_sender(
    turns: Turns, caplog: pytest.LogCaptureFixture, ends: BaseException
) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, batch_bytes=1)
    first = producer.send_later("first")
    request = network.arrived()

    def end(_: object) -> None:
        raise ends

    first.add_done_callback(end)
    second = producer.send_later("second")
    network.decide_all("answered", request)
    assert turns.result(second).queue_offset == 1
    assert f"{ends!r}: the producer goes on" in caplog.text
    producer.close()


def test_a_callback_that_closes_in_a_close_that_gave_up_waits_for_nobody(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, retry_until=60.0)
    in_flight = producer.send_later("in flight")
    request = network.arrived()
    unsent = producer.send_later("unsent")
    closed = [in_callback(future, producer.close) for future in (in_flight, unsent)]
    producer.close(0)
    assert closed == [[None], [None]]
    assert isinstance(unsent.exception(0), Closed)
    network.decide_all("answered", request)
    turns.settle()


def test_a_batch_that_is_too_large_goes_in_parts_and_the_next_ones_are_smaller(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=FOR_EVER_MS, batch_bytes=1_000_000)
    texts = [f"{number}" * 10 for number in range(8)]
    futures = [producer.send_later(text, sharding_key="k") for text in texts]
    flushed = turns.submit(producer.flush)
    sizes: list[int] = []
    while not all(future.done() for future in futures):
        request = network.arrived()
        sizes.append(len(request.lines))
        request.fate.put("answered" if len(request.lines) <= 2 else "too large")
        turns.settle()
    turns.result(flushed)
    assert bodies(network.stored["t"]) == texts
    assert sizes[:3] == [8, 4, 2]
    assert sizes[3:] == [2, 2, 2], "the broker is not asked again for what it does not take"
    alone = producer.send_later("x")
    producer_flush = turns.submit(producer.flush)
    network.arrived().fate.put("too large")
    turns.result(producer_flush)
    assert alone.exception(0).code == "REQUEST_TOO_LARGE"  # type: ignore[union-attr]  # it is an error
    producer.close()


def test_a_callback_that_flushes_is_refused_and_nothing_waits_for_it(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, batch_bytes=1)
    first = producer.send_later("first")
    request = network.arrived()
    refused = [in_callback(first, flush) for flush in (producer.flush, lambda: producer.flush(5.0))]
    second = producer.send_later("second")
    network.decide_all("answered", request)
    assert turns.result(second).queue_offset == 1
    for error in refused:
        assert isinstance(error[0], InvalidRequest)
        assert "in a future's callback" in error[0].detail
    producer.close()


def test_a_callback_that_flushes_in_a_close_that_gave_up_is_refused_too(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=FOR_EVER_MS)
    refused = in_callback(producer.send_later("x"), producer.flush)
    closing = turns.submit(producer.close, 0)
    turns.result(closing)
    assert isinstance(refused[0], InvalidRequest)


def test_a_callback_waits_for_no_room_and_may_put_what_fits(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    line = len(Message("x").to_line())
    options = {"linger_ms": 0, "batch_bytes": 1, "max_pending_bytes": line}
    producer = producer_of(turns, network.client(), **options)
    first = producer.send_later("1")
    request = network.arrived()
    refused = in_callback(first, lambda: producer.send_later("no"))
    second = producer.send_later("2")
    put = in_callback(second, lambda: producer.send_later("3"))
    network.decide_all("answered", request)
    turns.result(second)
    assert isinstance(refused[0], Unavailable)
    assert refused[0].code == "SYSTEM_BUSY"
    assert isinstance(put[0], Future)
    assert turns.result(put[0]).queue_offset == 2
    producer.close()
    assert bodies(network.stored["t"]) == ["1", "2", "3"]


def test_an_answer_that_comes_after_a_close_that_gave_up_disturbs_nobody(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0)
    future = producer.send_later("x")
    request = network.arrived()
    producer.close(0)
    error = future.exception(0)
    assert isinstance(error, OutcomeUnknown)
    assert error.idempotency_key == request.key
    network.decide_all("answered", request)
    producer.flush()
    assert network.stored == {"t": request.lines}
    producer.close()


def test_a_topic_of_the_message_goes_before_the_producers(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    with producer_of(turns, network.client()) as producer:
        assert producer.send(Message("x"), topic="u").topic == "u"
        later = producer.send_later("x", topic="v")
        producer.flush()
        assert later.result(0).topic == "v"
        with pytest.raises(TypeError, match="inside the Message"):
            producer.send(Message("x"), tags="a")


def test_fields_are_the_messages(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    with producer_of(turns, network.client()) as producer:
        producer.send_later("x", tags="a", keys=["k"])
    assert json.loads(network.stored["t"][0]) == {"body": "x", "tags": "a", "keys": ["k"]}


def test_without_a_topic_nothing_is_sent(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with Producer(network.client(), clock=turns.clock, threads=turns) as producer:
        for send in (producer.send, producer.send_later):
            with pytest.raises(InvalidRequest) as refused:
                send("x")
            assert refused.value.code == "TOPIC_ILLEGAL"
    assert network.stored == {}


@pytest.mark.parametrize("fate", ["answered", "unsent"])
def test_a_key_whose_broker_nobody_tells_is_heard_of_in_its_future(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, fate: Fate
) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all(fate)
    client = network.client(retries=0)
    monkeypatch.setattr(client, "known_lane", lambda topic, sharding_key: None)
    with producer_of(turns, client) as producer:
        future = producer.send_later("x", sharding_key="k")
    if fate == "answered":
        assert future.result(0).queue_offset == 0
    else:
        assert isinstance(future.exception(0), Unavailable)


def test_a_queue_that_is_selected_may_be_a_plain_tuple(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    client = network.client()
    monkeypatch.setattr(client, "message_queues", lambda topic: [MessageQueue("t", "b", 3)])
    monkeypatch.setattr(client, "broker", lambda name: client)
    with producer_of(turns, client) as producer:
        producer.send("x", select_queue=lambda queues: cast(MessageQueue, ("t", "b", 3)))
        producer.send_later("y", select_queue=lambda queues: cast(MessageQueue, tuple(queues[0])))
    assert [json.loads(line)["queue_id"] for line in network.stored["t"]] == [3, 3]


def test_its_block_closes_it_and_its_thread_says_whose_it_is(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    to_do_at_exit = atexit._ncallbacks()  # noqa: SLF001 - there is no other way to ask
    with producer_of(turns, network.client(), linger_ms=FOR_EVER_MS) as producer:
        promised = producer.send_later("x")
        assert atexit._ncallbacks() == to_do_at_exit + 1  # noqa: SLF001
        assert [thread.name for thread in turns.threads if thread.is_alive()] == ["lakemq-producer"]
    assert promised.result(0).queue_offset == 0
    assert not any(thread.is_alive() for thread in turns.threads)


def test_a_batch_of_exactly_its_size_is_due_and_goes_as_a_whole(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    line = len(Message("x").to_line())
    options = {"linger_ms": FOR_EVER_MS, "batch_bytes": 2 * line}
    with producer_of(turns, network.client(), **options) as producer:
        producer.send_later("x")
        turns.settle()
        assert network.is_idle()
        producer.send_later("y")
        request = network.arrived()
        assert bodies(request.lines) == ["x", "y"]
        network.decide_all("answered", request)


def test_behind_a_send_that_was_given_up_only_what_waited_too_long_fails(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    options = {"linger_ms": FOR_EVER_MS, "retry_until": 60.0}
    with producer_of(turns, network.client(timeout_s=3.0), **options) as producer:
        first = producer.send_later("first")
        flushing = turns.submit(producer.flush)
        request = network.arrived()
        late = [producer.send_later("late", topic=topic) for topic in ("u", "v")]
        flushing_late = turns.submit(producer.flush)
        turns.pass_time(50.0)
        waits = producer.send_later("waits", topic="w")
        turns.pass_time(10.0)
        assert not flushing.done()
        request.fate.put("short")
        turns.settle()
        error = first.exception(0)
        assert isinstance(error, OutcomeUnknown)
        assert "1 messages sent, 0 results" in error.detail
        for future in late:
            failed = future.exception(0)
            assert isinstance(failed, Unavailable)
            assert failed.code == "SERVICE_NOT_AVAILABLE"
            assert "1 messages sent, 0 results" in failed.detail
        assert flushing.done()
        assert flushing_late.done(), "what was given up has ended too"
        assert network.is_idle()
        assert not waits.done(), "it lingers: nobody has asked for it"
        network.decide_all("answered")
    assert waits.result(0).topic == "w"


def test_behind_a_broker_that_hangs_its_messages_fail_together_and_the_others_go(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ScriptedNetwork(turns)
    client = network.client(retries=0, timeout_s=3.0)
    monkeypatch.setattr(client, "known_lane", lambda topic, sharding_key: sharding_key)
    with producer_of(turns, client, linger_ms=0, batch_bytes=1) as producer:
        hung = [producer.send_later(f"hung {number}", sharding_key="hangs") for number in range(100)]
        other = producer.send_later("other", sharding_key="answers")
        first = network.arrived()
        turns.pass_time(3.0)
        late = producer.send_later("late", sharding_key="hangs")
        first.fate.put("lost")
        request = network.arrived()
        assert bodies(request.lines) == ["other"], "it waits for one of the broker's sends, not for a hundred"
        request.fate.put("answered")
        assert turns.result(other).status == "SEND_OK"
        assert isinstance(hung[0].exception(0), OutcomeUnknown)
        assert {type(future.exception(0)) for future in hung[1:]} == {Unavailable}
        network.decide_all("answered")
        assert turns.result(late).status == "SEND_OK", "it has time left"


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


def test_a_batch_that_may_be_stored_at_one_broker_is_not_sent_anew_when_another_refuses_it(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ScriptedNetwork(turns)
    client = client_of_two(network, monkeypatch)
    with producer_of(turns, client, linger_ms=FOR_EVER_MS) as producer:
        futures = [producer.send_later(body) for body in "xy"]
        flushing = turns.submit(producer.flush)
        first = network.arrived()
        first.fate.put("lost")
        again = network.arrived()
        assert (again.key, again.lines) == (first.key, first.lines)
        again.fate.put(0)
        turns.settle()
        assert network.is_idle(), "no part of it goes under another key"
        turns.result(flushing)
        for future in futures:
            error = future.exception(0)
            assert isinstance(error, OutcomeUnknown)
            assert error.idempotency_key == first.key


def test_a_message_that_was_repeated_elsewhere_says_so(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    network = ScriptedNetwork(turns)
    client = client_of_two(network, monkeypatch)
    with producer_of(turns, client, linger_ms=0) as producer:
        later = producer.send_later("x")
        network.arrived().fate.put("lost")
        network.arrived().fate.put("answered")
        assert turns.result(later).repeated_elsewhere
        other = producer.send_later("y")
        network.arrived().fate.put("answered")
        assert not turns.result(other).repeated_elsewhere


def test_a_queue_is_named_once() -> None:
    network = ScriptedNetwork()
    with Producer(network.client(), "t") as producer:
        for send in (producer.send, producer.send_later):
            with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL: select_queue and queue_id: give one"):
                send("x", queue_id=1, select_queue=lambda queues: queues[0])
    assert network.is_idle()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("linger_ms", value) for value in (-1, float("inf"), float("nan"), 1e300, "10", True, None)),
        *((name, value) for name in ("batch_bytes", "max_pending_bytes") for value in (0, -1, "1", None)),
        *(("retry_until", value) for value in (0, -1.0, float("inf"), float("nan"), "60", True)),
        ("timeout_s", None),
    ],
)
def test_a_number_without_sense_is_refused_when_a_producer_is_made(name: str, value: Any) -> None:
    to_do_at_exit = atexit._ncallbacks()  # noqa: SLF001 - there is no other way to ask
    with pytest.raises(InvalidRequest, match=f"ARGUMENT_ILLEGAL: {name}: is {re.escape(repr(value))}, "):
        Producer("http://127.0.0.1:1", "t", **{name: value})
    assert atexit._ncallbacks() == to_do_at_exit  # noqa: SLF001


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), True, 1e12])
def test_a_wait_that_is_no_time_is_refused_and_closes_nothing(turns: Turns, timeout: Any) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(), linger_ms=0) as producer:
        for wait in (producer.flush, producer.close):
            with pytest.raises(InvalidRequest, match=f"timeout: is {re.escape(repr(timeout))}, "):
                wait(timeout)
        network.decide_all("answered")
        assert turns.result(producer.send_later("x")).status == "SEND_OK"


def test_a_sharding_key_that_is_no_text_is_refused_and_those_beside_it_go(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    with producer_of(turns, network.client()) as producer:
        put = producer.send_later("x", sharding_key="17")
        for send in (producer.send, producer.send_later):
            with pytest.raises(InvalidRequest, match="sharding_key: is 17, not a text"):
                send("x", sharding_key=17)
    assert put.result(0).queue_offset == 0


@pytest.mark.parametrize(("in_a_batch", "most"), [(40, 2), (10, 6)])
def test_a_message_with_a_sharding_key_is_put_without_a_question_and_goes_with_those_of_its_broker(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, in_a_batch: int, most: int
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(network, monkeypatch, endpoints)
    keys = [f"customer-{number % 8}" for number in range(40)]
    messages = [Message(f"{at:02}", sharding_key=key) for at, key in enumerate(keys)]
    batch_bytes = in_a_batch * len(messages[0].to_line())
    with producer_of(turns, client, linger_ms=FOR_EVER_MS, batch_bytes=batch_bytes) as producer:
        futures = [producer.send_later(message) for message in messages]
        assert endpoints.asked == [], "the thread that sends asks"
        flushing = turns.submit(producer.flush)
        requests = []
        while not flushing.done():
            requests.append(network.arrived())
            requests[-1].fate.put("answered")
            turns.settle()
        endpoints.asked.clear()
        endpoints.now += REFRESH_S
        producer.send_later("late", sharding_key=keys[0])
        assert endpoints.asked == [], "what was known is enough"
        network.decide_all("answered")
    assert all(future.done() for future in futures)
    assert len(requests) <= most, "those that wait are put to their brokers' once it is known"
    for request in requests:
        numbers = [int(body) for body in bodies(request.lines)]
        assert numbers == sorted(numbers), "in the order they were put"
        assert len({client.lane("t", keys[number]) for number in numbers}) == 1


def test_of_a_first_batch_of_two_brokers_neither_waits_for_the_others_answer(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(network, monkeypatch, endpoints)
    keys = [f"customer-{number % 8}" for number in range(16)]
    with producer_of(turns, client, linger_ms=FOR_EVER_MS) as producer:
        futures = [producer.send_later(f"{at:02}", sharding_key=key) for at, key in enumerate(keys)]
        turns.submit(producer.flush)
        hangs, other = network.arrived(), network.arrived()
        other.fate.put("answered")
        turns.settle()
        done = [int(body) for body in bodies(other.lines)]
        assert [at for at, future in enumerate(futures) if future.done()] == sorted(done)
        assert {client.lane("t", keys[at]) for at in done} != {
            client.lane("t", keys[int(bodies(hangs.lines)[0])])
        }
        hangs.fate.put("answered")
    assert all(future.result(0).status == "SEND_OK" for future in futures)
    assert sorted(bodies(hangs.lines) + bodies(other.lines)) == [f"{at:02}" for at in range(16)]


@pytest.mark.timeout(60)
def test_what_waits_goes_to_its_keys_broker_of_now_when_another_broker_gets_the_topic(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics["t"] = ["a"]
    client = client_of_two(network, monkeypatch, endpoints)
    keys = [f"customer-{number % 8}" for number in range(64)]
    before = {client.lane("t", key) for key in keys}
    messages = [Message(f"{at:02}", sharding_key=key) for at, key in enumerate(keys)]
    batch_bytes = 8 * len(messages[0].to_line())
    with producer_of(turns, client, linger_ms=FOR_EVER_MS, batch_bytes=batch_bytes) as producer:
        futures = [producer.send_later(message) for message in messages]
        flushing = turns.submit(producer.flush)
        first = network.arrived()
        endpoints.topics["t"] = ["a", "b"]
        endpoints.now += REFRESH_S
        first.fate.put("answered")
        turns.settle()
        requests = [first]
        while not flushing.done():
            requests.append(network.arrived())
            requests[-1].fate.put("answered")
            turns.settle()
    assert len(before) == 1
    assert all(future.result(0).status == "SEND_OK" for future in futures)
    sent = [[int(body) for body in bodies(request.lines)] for request in requests]
    for numbers in sent[1:]:
        assert len({client.lane("t", keys[number]) for number in numbers}) == 1
    for key in set(keys):
        of_key = [number for numbers in sent for number in numbers if keys[number] == key]
        assert of_key == sorted(of_key)
        assert len(of_key) == 8


def test_without_a_thread_for_a_second_sender_the_first_sends_all(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(network, monkeypatch, endpoints)
    keys = [f"customer-{number % 8}" for number in range(16)]
    with producer_of(turns, client, linger_ms=0) as producer:
        network.decide_all("answered")
        turns.result(producer.send_later("first", sharding_key="k"))

        def no_thread(*_: object, **__: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(turns, "Thread", no_thread)
        futures = [producer.send_later(f"{at:02}", sharding_key=key) for at, key in enumerate(keys)]
        turns.settle()
        assert all(future.result(0).status == "SEND_OK" for future in futures)
    assert "another cannot be had: can't start new thread" in caplog.text


class _NobodyAtFirst(Endpoints):
    """Nobody says who they are until each was asked once, for a time-out."""

    def ask(self, endpoint: str, path: str, seconds: float = ASK_TIMEOUT_S) -> Any:
        if {A, B} <= {asked for asked, _ in self.asked}:
            return super().ask(endpoint, path, seconds)
        self.asked.append((endpoint, path))
        self.now += ASK_TIMEOUT_S
        raise Unavailable("SERVICE_NOT_AVAILABLE", f"{endpoint} timed out")


def test_where_nobody_said_at_first_whose_a_key_is_no_broker_waits_for_the_others_answer(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, endpoints = ScriptedNetwork(turns), _NobodyAtFirst()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(network, monkeypatch, endpoints)
    of_broker: dict[str, str] = {}
    for number in range(8):
        of_broker.setdefault(of_sharding_key(f"{number}", in_order({"a": 2, "b": 2})), f"{number}")
    with producer_of(turns, client, linger_ms=0, batch_bytes=1, retry_until=60.0) as producer:
        hang = [producer.send_later("a", sharding_key=of_broker["a"]) for _ in range(2)]
        other = producer.send_later("b", sharding_key=of_broker["b"])
        turns.settle()
        turns.pass_time(1.0)
        requests = {bodies(request.lines)[0]: request for request in (network.arrived(), network.arrived())}
        requests["b"].fate.put("answered")
        assert turns.result(other).status == "SEND_OK"
        assert not any(future.done() for future in hang)
        network.decide_all("answered", requests["a"])
    assert [future.result(0).queue_offset for future in hang] == [1, 2]


def test_a_key_whose_broker_nobody_ever_tells_fails_when_the_time_of_a_send_is_over(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.down = {A, B}
    client = client_of_two(network, monkeypatch, endpoints)
    with producer_of(turns, client, linger_ms=0, batch_bytes=1, retry_until=60.0) as producer:
        futures = [producer.send_later("x", sharding_key=key) for key in ("one", "two")]
        turns.settle()
        turns.pass_time(59.0)
        assert not any(future.done() for future in futures)
        turns.pass_time(1.0)
        assert all(isinstance(future.exception(0), Unavailable) for future in futures)
        late = producer.send_later("x", sharding_key="late")
        turns.settle()
        producer.close(0)
        turns.pass_time(1.0)
        assert isinstance(late.exception(0), OutcomeUnknown)
        assert not any(thread.is_alive() for thread in turns.threads[1:]), "it looks no more"
    with producer_of(turns, client, linger_ms=0) as producer:
        at_once = producer.send_later("x", sharding_key="one")
        assert isinstance(turns.error(at_once), Unavailable)
    assert network.is_idle()
