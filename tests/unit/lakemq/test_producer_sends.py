"""What a producer sends at once, or one way, and which of several brokers it goes to."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from lakemq import Message, Producer
from lakemq.client import Client, Closed, InvalidRequest, OutcomeUnknown, Unavailable
from tests.support.producers import FOR_EVER_MS, client_of_two, producer_of
from tests.support.scripted_endpoints import Endpoints
from tests.support.scripted_network import ScriptedNetwork
from tests.support.turns import Turns


def of_two(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, ScriptedNetwork], Client]:
    """The networks of brokers a and b, which answer and hold topic t, and their client."""
    networks, endpoints = {name: ScriptedNetwork(turns) for name in "ab"}, Endpoints()
    endpoints.topics["t"] = ["a", "b"]
    for network in networks.values():
        network.decide_all("answered")
    return networks, client_of_two(networks, monkeypatch, endpoints)


def stored(networks: dict[str, ScriptedNetwork]) -> dict[str, list[dict[str, Any]]]:
    """What each broker has of topic t."""
    return {
        name: [json.loads(line) for line in network.stored.get("t", ())] for name, network in networks.items()
    }


def test_sends_go_in_turn_and_those_under_a_key_of_the_callers_to_one_broker(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks, client = of_two(turns, monkeypatch)
    with producer_of(turns, client) as producer:
        for _ in range(20):
            producer.send("in turn")
        assert {name: len(rows) for name, rows in stored(networks).items()} == {"a": 10, "b": 10}
        answers = [producer.send("mine", idempotency_key="mine") for _ in range(6)]
    assert [answer.duplicate for answer in answers] == [False, *[True] * 5]
    assert sum({"body": "mine"} in rows for rows in stored(networks).values()) == 1


@pytest.mark.parametrize("broker_name", ["a", "b"])
def test_what_is_sent_to_a_selected_queue_goes_to_its_broker(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, broker_name: str
) -> None:
    networks, client = of_two(turns, monkeypatch)
    with producer_of(turns, client) as producer:
        for send in (producer.send, producer.send_one_way):
            for _ in range(2):
                send("x", select_queue=lambda queues: [one for one in queues if one[1] == broker_name][1])
    other = "b" if broker_name == "a" else "a"
    assert stored(networks) == {broker_name: [{"body": "x", "queue_id": 1}] * 4, other: []}


def test_a_message_goes_one_way_with_its_fields_to_its_own_topic_or_the_producers(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    with producer_of(turns, network.client()) as producer:
        producer.send_one_way("x", tags="a", keys=["k"])
        producer.send_one_way(Message("y"), topic="u")
    found = {topic: [json.loads(line) for line in lines] for topic, lines in network.stored.items()}
    assert found == {"t": [{"body": "x", "tags": "a", "keys": ["k"]}], "u": [{"body": "y"}]}


def test_what_goes_one_way_is_not_repeated_where_it_may_be_stored(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(retries=2)) as producer:
        sending = turns.submit(producer.send_one_way, "x")
        request = network.arrived()
        request.fate.put("lost")
        assert isinstance(turns.error(sending), OutcomeUnknown)
        assert request.key is None
    assert network.is_idle()
    assert len(network.stored["t"]) == 1


def test_a_producer_without_a_topic_or_closed_sends_nothing_one_way(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with Producer(network.client(), clock=turns.clock, threads=turns) as producer:
        with pytest.raises(InvalidRequest) as refused:
            producer.send_one_way("x")
        assert refused.value.code == "TOPIC_ILLEGAL"
    with pytest.raises(Closed) as closed:
        producer.send_one_way("x", topic="t")
    assert closed.value.code == "PRODUCER_CLOSED"
    assert network.stored == {}


def test_a_batch_goes_by_what_was_heard_of_its_topic_before_and_asks_nobody(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks, client = of_two(turns, monkeypatch)
    assert client.lane("t", "k") in networks

    def nobody_says(topic: str, sharding_key: str | None) -> str | None:
        raise Unavailable("SERVICE_NOT_AVAILABLE", "nobody says")

    with producer_of(turns, client, linger_ms=0) as producer:
        monkeypatch.setattr(client, "lane", nobody_says)
        assert turns.result(producer.send_later("x", sharding_key="k")).status == "SEND_OK"


def test_a_dropped_producer_with_nothing_to_send_is_said_to_be_unclosed(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    network.decide_all("answered")
    producer = producer_of(turns, network.client(), linger_ms=0)
    assert turns.result(producer.send_later("x")).queue_offset == 0
    name = repr(producer)
    with pytest.warns(ResourceWarning, match="unclosed") as warned:
        del producer
    assert [str(one.message) for one in warned] == [f"unclosed {name}"]
    dropped = warned[0].source
    assert isinstance(dropped, Producer), "so that tracemalloc says where it was made"
    dropped.close()


def test_a_producer_that_was_refused_when_it_was_made_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with pytest.raises(InvalidRequest):
        Producer("http://127.0.0.1:1", "t", linger_ms=-FOR_EVER_MS)
    assert unraisable == []
