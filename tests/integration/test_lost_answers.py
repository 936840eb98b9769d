"""What a sender receives when the broker's answer is lost.

Never that nothing was stored; and what is repeated is stored once.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from lakemq import Client, Producer
from lakemq.client import Closed, InvalidRequest, OutcomeUnknown, Unavailable
from lakemq.terminal.failure import CommandFailed
from lakemq.upload import bulk, ndjson
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.http import Http
from tests.support.waiting import wait_until

SOON_S = 10.0
"""Longer than the time-outs asked for here, however busy the machine is; shorter than none at all."""


@pytest.fixture
def topic(shared_broker: BrokerProcess) -> str:
    name = f"lost-{uuid4().hex[:12]}"
    shared_broker.client().put_topic(name, read_queue_nums=1, write_queue_nums=1)
    return name


@pytest.fixture
def bodies(shared_broker: BrokerProcess, topic: str) -> Callable[[], list[str]]:
    def read() -> list[str]:
        client = shared_broker.client()
        await_dispatch(client)
        return [message.text for message in client.pull(topic, 0, 0).messages]

    return read


def test_producer_repeats_a_lost_answer_under_one_key_and_stores_once(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]]
) -> None:
    with FaultyProxy(shared_broker.endpoint, "lose", "lose", "pass") as proxy:
        with Producer(proxy.endpoint, topic, timeout_s=SOON_S) as producer:
            assert producer.send("x").duplicate
        assert len(proxy.keys) == 3
        assert len(set(proxy.keys)) == 1
    assert bodies() == ["x"]


def test_batch_whose_answer_is_lost_is_stored_once(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]]
) -> None:
    with FaultyProxy(shared_broker.endpoint, "lose", "pass") as proxy:
        with Producer(proxy.endpoint, topic, linger_ms=60_000, timeout_s=SOON_S) as producer:
            futures = [producer.send_later(str(n)) for n in range(3)]
        assert [future.result(0).queue_offset for future in futures] == [0, 1, 2]
        assert len(set(proxy.keys)) == 1
    assert bodies() == ["0", "1", "2"]


def test_sender_whose_outcome_is_unknown_repeats_with_the_key_and_stores_once(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]]
) -> None:
    with (
        FaultyProxy(shared_broker.endpoint, "lose", "lose", "lose", "pass") as proxy,
        Producer(proxy.endpoint, topic, timeout_s=SOON_S) as producer,
    ):
        with pytest.raises(OutcomeUnknown) as unknown:
            producer.send("x")
        assert proxy.stored == 3  # the broker stored it, then answered from its memory
        key = unknown.value.idempotency_key
        assert key is not None
        assert proxy.keys == [key] * 3
        assert key in str(unknown.value)
        assert "safe" in str(unknown.value)
        assert pickle.loads(pickle.dumps(unknown.value)).idempotency_key == key
        assert producer.send("x", idempotency_key=key).duplicate
    assert bodies() == ["x"]


def test_send_without_a_key_is_not_repeated_when_its_answer_is_lost(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]]
) -> None:
    with FaultyProxy(shared_broker.endpoint, "lose", "pass") as proxy:
        with Client(proxy.endpoint) as client, pytest.raises(OutcomeUnknown, match="look first") as unknown:
            client.send(topic, "x")
        assert unknown.value.idempotency_key is None
    assert bodies() == ["x"]


def test_refused_repeat_does_not_make_a_lost_send_unstored(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]]
) -> None:
    with FaultyProxy(shared_broker.endpoint, "lose", "busy") as proxy:
        client = Client(proxy.endpoint, retries=1)
        with pytest.raises(OutcomeUnknown, match="SYSTEM_BUSY") as unknown:
            client.send(topic, "x", idempotency_key=f"k-{topic}")
    assert isinstance(unknown.value.__cause__, Unavailable)
    assert bodies() == ["x"]


def test_page_of_a_proxy_between_does_not_say_that_nothing_was_stored(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]]
) -> None:
    with (
        FaultyProxy(shared_broker.endpoint, "bad gateway") as proxy,
        Client(proxy.endpoint) as client,
        pytest.raises(OutcomeUnknown, match="Bad gateway"),
    ):
        client.send(topic, "x")
    assert bodies() == ["x"]


@pytest.mark.parametrize("fault", ["cut", "other shape"])
def test_answer_that_does_not_arrive_whole_is_a_lost_one(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]], fault: Fault
) -> None:
    with FaultyProxy(shared_broker.endpoint, fault, "pass", fault, "pass") as proxy:
        with Producer(proxy.endpoint, topic, timeout_s=SOON_S) as producer:
            assert producer.send("a").duplicate
            later = producer.send_later("b")
        assert later.result(0).queue_offset == 1
        assert len(set(proxy.keys)) == 2
    with FaultyProxy(shared_broker.endpoint, fault) as proxy, Client(proxy.endpoint) as client:
        with pytest.raises(OutcomeUnknown) as unknown:
            client.send(topic, "c", idempotency_key=f"k-{topic}")
        assert unknown.value.idempotency_key == f"k-{topic}"
        with pytest.raises(OutcomeUnknown, match="look first"):
            client.send(topic, "d")
        batches = ndjson.batches(
            io.BytesIO(b'{"body":"e"}'), ndjson.LineRule("message"), max_count=1, max_bytes=99
        )
        with pytest.raises(CommandFailed, match="whether this batch is stored is not known"):
            bulk.post(client, topic, batches)
        with pytest.raises(InvalidRequest, match="LakeMQ broker"):
            client.queues(topic)
    assert bodies() == ["a", "b", "c", "d", "e"]


def test_retry_until_goes_on_beyond_the_number_of_retries(shared_broker: BrokerProcess, topic: str) -> None:
    faults: list[Fault] = ["lose"] * 5
    with FaultyProxy(shared_broker.endpoint, *faults, "pass") as proxy:
        client = Client(proxy.endpoint, retries=0)
        assert client.send(topic, "x", idempotency_key=f"k-{topic}", retry_until=60).duplicate
        assert len(proxy.keys) == 6


def test_retry_until_is_the_end_of_trying(shared_broker: BrokerProcess, topic: str) -> None:
    with FaultyProxy(shared_broker.endpoint, "lose") as proxy:
        client = Client(proxy.endpoint, retry_until=1.0)
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            client.send(topic, "x", idempotency_key=f"k-{topic}")
        assert time.monotonic() - began < SOON_S


def test_retry_after_is_honoured_while_there_is_time(shared_broker: BrokerProcess, topic: str) -> None:
    with FaultyProxy(shared_broker.endpoint, "busy", "pass") as proxy:
        client = Client(proxy.endpoint)
        began = time.monotonic()
        client.send(topic, "refused once, stored then")
        assert time.monotonic() - began >= 1.5
        assert len(proxy.keys) == 2


def test_retry_after_beyond_the_deadline_is_not_waited_for(shared_broker: BrokerProcess, topic: str) -> None:
    with FaultyProxy(shared_broker.endpoint, "busy") as proxy:
        client = Client(proxy.endpoint, timeout_s=1.0)
        with pytest.raises(Unavailable) as busy:
            client.send(topic, "x")
        assert busy.value.context["retry_after_ms"] == 1500
        assert len(proxy.keys) == 1


@pytest.mark.parametrize("fault", ["hang", "dribble"])
def test_broker_that_does_not_end_its_answer_costs_the_time_asked_for(
    shared_broker: BrokerProcess, topic: str, fault: str
) -> None:
    with FaultyProxy(shared_broker.endpoint, fault) as proxy:  # type: ignore[arg-type]  # parametrised
        client = Client(proxy.endpoint, timeout_s=0.5, retries=5)
        began = time.monotonic()
        with pytest.raises(Unavailable, match="timed out"):
            client.queues(topic)
        with pytest.raises(OutcomeUnknown, match="timed out"):
            client.send(topic, "x", idempotency_key=f"k-{topic}")
        assert time.monotonic() - began < SOON_S


def test_waiting_for_a_connection_is_within_the_time_asked_for(
    shared_broker: BrokerProcess, topic: str
) -> None:
    client = Client(shared_broker.endpoint, timeout_s=0.5, pool_size=1)
    shared_broker.client().put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(client.pull, topic, 0, 0, wait_ms=15_000)
        wait_until(lambda: Http(shared_broker.endpoint).pulls_held() == 1)
        with pytest.raises(Unavailable, match="in use") as unsent:
            client.send(topic, "x")
        assert unsent.value.context["sent"] is False
        assert shared_broker.client().send(topic, "ends the pull").queue_offset == 0
        assert [message.text for message in holding.result(30).messages] == ["ends the pull"]
    assert client.send(topic, "x").queue_offset == 1


def test_closed_client_says_so(shared_broker: BrokerProcess, topic: str) -> None:
    client = Client(shared_broker.endpoint)
    client.send(topic, "x")
    client.close()
    for call in (lambda: client.send(topic, "y"), lambda: client.queues(topic), lambda: client.topics()):
        with pytest.raises(Closed, match="CLIENT_CLOSED"):
            call()


def test_closed_producer_says_so(shared_broker: BrokerProcess, topic: str) -> None:
    with Client(shared_broker.endpoint) as client:
        producer = Producer(client, topic)
        producer.close()
        for send in (producer.send, producer.send_later):
            with pytest.raises(Closed, match="PRODUCER_CLOSED"):
                send("y")


def test_flush_waits_no_longer_than_its_timeout(shared_broker: BrokerProcess, topic: str) -> None:
    with FaultyProxy(shared_broker.endpoint, "hang") as proxy:
        producer = Producer(proxy.endpoint, topic, timeout_s=60.0)
        future = producer.send_later("x")
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="1 messages"):
            producer.flush(0.2)
        assert not future.done()
        producer.close(0.2)
        assert time.monotonic() - began < SOON_S
        assert isinstance(future.exception(0), OutcomeUnknown)


def test_flush_does_not_wait_for_what_is_put_after_it(shared_broker: BrokerProcess, topic: str) -> None:
    with FaultyProxy(shared_broker.endpoint, "pass", "hang") as proxy:
        producer = Producer(proxy.endpoint, topic, timeout_s=60.0, linger_ms=0)
        first = producer.send_later("x")
        # From the sender's thread, before it says that the first batch has ended.
        first.add_done_callback(lambda _: producer.send_later("later"))
        producer.flush(60)
        assert first.result(0).queue_offset == 0
        producer.close(0.1)


def test_close_ends_every_future_in_the_time_it_is_given(shared_broker: BrokerProcess, topic: str) -> None:
    with FaultyProxy(shared_broker.endpoint, "hang") as proxy:
        producer = Producer(proxy.endpoint, topic, timeout_s=60.0, batch_bytes=10)
        futures = [producer.send_later(str(n)) for n in range(5)]
        began = time.monotonic()
        while not proxy.keys:  # the first batch is on its way
            assert time.monotonic() - began < SOON_S
        producer.close(0.2)
        assert time.monotonic() - began < SOON_S
        ends = [future.exception(0) for future in futures]
        assert isinstance(ends[0], OutcomeUnknown)
        assert ends[0].idempotency_key == proxy.keys[0]
        assert all(isinstance(end, Closed) and "not sent" in str(end) for end in ends[1:])


def test_full_buffer_before_a_dead_broker_fails_together(shared_broker: BrokerProcess, topic: str) -> None:
    with FaultyProxy(shared_broker.endpoint, "hang") as proxy:
        producer = Producer(proxy.endpoint, topic, timeout_s=0.3, batch_bytes=10)
        futures = [producer.send_later(str(n)) for n in range(200)]
        began = time.monotonic()
        producer.close()  # one after the other they would take a minute
        assert time.monotonic() - began < SOON_S
        ends = [future.exception(0) for future in futures]
        assert isinstance(ends[0], OutcomeUnknown)
        assert isinstance(ends[-1], Unavailable)
        assert ends[-1].context["sent"] is False


def test_bulk_load_does_not_call_a_batch_unstored_whose_answer_was_lost(
    shared_broker: BrokerProcess, topic: str, bodies: Callable[[], list[str]]
) -> None:
    source = io.BytesIO(b'{"body": "x"}\n')
    batches = ndjson.batches(source, ndjson.LineRule("message"), max_count=10, max_bytes=1000)
    with (
        FaultyProxy(shared_broker.endpoint, "lose") as proxy,
        Client(proxy.endpoint) as client,
        pytest.raises(CommandFailed, match="whether this batch is stored is not known"),
    ):
        bulk.post(client, topic, batches)
    assert bodies() == ["x"]
