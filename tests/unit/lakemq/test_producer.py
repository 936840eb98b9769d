"""The producer's edges: time, sizes, what it refuses.

The order, the bound, the keys and the end of every future are in test_producer_rules.py.
"""

from __future__ import annotations

import atexit
import json
import re
from typing import Any, cast

import pytest

from lakemq import Message, Producer
from lakemq.client import Closed, InvalidRequest, MessageQueue, OutcomeUnknown, Unavailable
from tests.support.producers import FOR_EVER_MS, REPEATED, bodies, producer_of
from tests.support.scripted_network import ScriptedNetwork
from tests.support.turns import Turns


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


def test_a_flush_does_not_wait_for_what_was_put_behind_it_where_a_batch_has_both(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(), linger_ms=0) as producer:
        producer.send_later("under way")
        first = network.arrived()
        refused = producer.send_later("refused")
        flushing = turns.submit(producer.flush)
        turns.settle()
        producer.send_later("behind")
        first.fate.put("answered")
        both = network.arrived()
        assert bodies(both.lines) == ["refused", "behind"]
        both.fate.put(0)
        behind = network.arrived()
        assert isinstance(turns.error(refused), InvalidRequest)
        turns.result(flushing)
        network.decide_all("answered", behind)


def test_a_flush_that_gives_up_counts_what_it_waited_for(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(), linger_ms=0) as producer:
        producer.send_later("x")
        flushing = turns.submit(producer.flush, 5.0)
        request = network.arrived()
        producer.send_later("behind")
        turns.pass_time(5.0)
        with pytest.raises(TimeoutError, match=r"^1 messages are still on their way"):
            flushing.result(0)
        network.decide_all("answered", request)


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


def test_two_messages_that_are_too_large_together_go_one_by_one_under_keys_of_their_own(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=FOR_EVER_MS)
    futures = [producer.send_later(body) for body in "xy"]
    turns.submit(producer.flush)
    both = network.arrived()
    both.fate.put("too large")
    first = network.arrived()
    assert bodies(first.lines) == ["x"]
    producer.close(0)
    unknown = futures[0].exception(0)
    assert isinstance(unknown, OutcomeUnknown)
    assert None not in (first.key, both.key), "a repeat after a lost answer would be stored twice"
    assert unknown.idempotency_key == first.key != both.key
    assert isinstance(futures[1].exception(0), Closed)
    network.decide_all("answered", first)
    turns.settle()


@pytest.mark.parametrize("index", [2, 3])
def test_a_refusal_that_names_no_message_of_the_batch_is_heard_of_in_each_future(
    turns: Turns, index: int
) -> None:
    network = ScriptedNetwork(turns)
    with producer_of(turns, network.client(), linger_ms=FOR_EVER_MS) as producer:
        futures = [producer.send_later(body) for body in "xy"]
        turns.submit(producer.flush)
        network.arrived().fate.put(index)
        assert {type(turns.error(future)) for future in futures} == {InvalidRequest}
        network.decide_all("answered")
        after = producer.send_later("z")
    assert after.result(0).queue_offset == 0


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


def test_a_field_of_the_wrong_type_is_refused_by_the_call_and_nothing_is_put(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    keys = cast(list[str], [17])
    with producer_of(turns, network.client()) as producer:
        for send in (producer.send, producer.send_later, producer.send_one_way):
            with pytest.raises(InvalidRequest, match=r"keys\[0\] must be a string, not int$"):
                send("x", keys=keys)
    assert network.stored == {}


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
