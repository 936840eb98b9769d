"""A producer of several brokers: whose a message is, and who waits for whom."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from lakemq import Message
from lakemq.client import InvalidRequest, OutcomeUnknown, SendResult, Unavailable
from lakemq.client.routes import ASK_TIMEOUT_S, REFRESH_S
from store_native.sharding import in_order, of_sharding_key
from tests.support.producers import FOR_EVER_MS, bodies, client_of_two, producer_of
from tests.support.scripted_endpoints import A, B, Endpoints
from tests.support.scripted_network import Fate, ScriptedNetwork
from tests.support.turns import Turns


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


def test_a_sharding_key_that_is_no_text_is_refused_and_those_beside_it_go(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    with producer_of(turns, network.client()) as producer:
        put = producer.send_later("x", sharding_key="17")
        for send in (producer.send, producer.send_later):
            with pytest.raises(InvalidRequest, match="sharding_key must be a string, not int"):
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


def test_batches_without_keys_go_to_the_brokers_in_turn_and_a_selected_queue_to_its_own(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks, endpoints = {name: ScriptedNetwork(turns) for name in "ab"}, Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    for network in networks.values():
        network.decide_all("answered")
    client = client_of_two(networks, monkeypatch, endpoints)
    with producer_of(turns, client, linger_ms=0, batch_bytes=1) as producer:
        for count in range(1, 21):
            assert turns.result(producer.send_later("x")).status == "SEND_OK"
            assert {len(network.stored.get("t", ())) for network in networks.values()} == {
                count // 2,
                (count + 1) // 2,
            }
        for _ in range(3):
            turns.result(producer.send_later("b's", select_queue=lambda queues: queues[-1]))
    assert bodies(networks["b"].stored["t"])[-3:] == ["b's"] * 3
    assert "b's" not in bodies(networks["a"].stored["t"])


@pytest.mark.parametrize("key", [None, "customer-7"])
def test_behind_a_selected_broker_that_hangs_only_what_is_for_it_fails(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    networks, endpoints = {name: ScriptedNetwork(turns) for name in "ab"}, Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(networks, monkeypatch, endpoints)
    broker_of_key = client.lane("t", "customer-7")
    hangs, answers = ("a", "b") if broker_of_key == "b" else ("b", "a")

    def put(broker_name: str) -> Future[SendResult]:
        chosen = {"a": 0, "b": -1}[broker_name]
        return producer.send_later("x", sharding_key=key, select_queue=lambda queues: queues[chosen])

    with producer_of(turns, client, linger_ms=0, batch_bytes=1) as producer:
        hung, late = put(hangs), put(hangs)
        others = [put(answers), put(answers)]
        first, beside = networks[hangs].arrived(), networks[answers].arrived()
        turns.pass_time(30.0)
        first.fate.put("lost")
        assert isinstance(turns.error(hung), OutcomeUnknown)
        assert isinstance(late.exception(0), Unavailable)
        assert not any(future.done() for future in others)
        networks[answers].decide_all("answered", beside)
        assert [turns.result(future).queue_offset for future in others] == [0, 1]


def test_behind_a_key_of_which_nobody_had_said_whose_it_is_only_what_is_of_its_broker_fails(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks, endpoints = {name: ScriptedNetwork(turns) for name in "ab"}, Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(networks, monkeypatch, endpoints)
    of_broker: dict[str, str] = {}
    for number in range(8):
        of_broker.setdefault(of_sharding_key(f"{number}", in_order({"a": 2, "b": 2})), f"{number}")
    with producer_of(turns, client, linger_ms=FOR_EVER_MS, batch_bytes=1) as producer:
        hung, late, *others = (producer.send_later("x", sharding_key=of_broker[name]) for name in "aabb")
        turns.submit(producer.flush)
        first, beside = networks["a"].arrived(), networks["b"].arrived()
        turns.pass_time(30.0)
        first.fate.put("lost")
        assert isinstance(turns.error(hung), OutcomeUnknown)
        assert isinstance(late.exception(0), Unavailable)
        assert not any(future.done() for future in others)
        networks["b"].decide_all("answered", beside)
        assert [turns.result(future).queue_offset for future in others] == [0, 1]


def test_what_a_broker_refuses_as_of_several_and_was_told_as_of_one_goes_one_by_one(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    client = client_of_two(network, monkeypatch, endpoints)
    keys = {client.lane("t", f"{number}"): f"{number}" for number in range(8)}
    for ask in ("lane", "known_lane"):
        monkeypatch.setattr(client, ask, lambda topic, sharding_key: "as it was told")
    with producer_of(turns, client, linger_ms=FOR_EVER_MS) as producer:
        futures = [producer.send_later(name, sharding_key=keys[name]) for name in "ab"]
        network.decide_all("answered")
    assert [future.result(0).queue_offset for future in futures] == [0, 1]
    assert bodies(network.stored["t"]) == ["a", "b"]


def test_the_time_that_the_question_whose_a_key_is_took_is_not_given_to_its_send(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, endpoints = ScriptedNetwork(turns), Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    endpoints.down = {A, B}
    client = client_of_two(network, monkeypatch, endpoints)
    given_s: list[float] = []
    send = client.send_ndjson

    def send_ndjson(*what: Any, **how: Any) -> Any:
        given_s.append(how["retry_until"])
        return send(*what, **how)

    monkeypatch.setattr(client, "send_ndjson", send_ndjson)
    with producer_of(turns, client, linger_ms=0, retry_until=60.0) as producer:
        producer.send_later("x", sharding_key="k")
        turns.settle()
        turns.pass_time(50.0)
        endpoints.down, endpoints.now = set(), endpoints.now + REFRESH_S
        turns.pass_time(1.0)
        network.arrived().fate.put("answered")
    assert len(given_s) == 1
    assert 9.0 <= given_s[0] <= 10.0
