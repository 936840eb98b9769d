"""The producer: batches keep the order, a bad message fails alone, nothing is lost at the end."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest

from lakemq import Message, Producer
from lakemq.client import InvalidRequest, LakeMQError, Unavailable
from tests.support.broker_process import BrokerProcess
from tests.support.tcp_proxy import TcpProxy

FOR_EVER_MS = 3_600_000


def topic_of_one_queue(broker: BrokerProcess) -> str:
    name = f"p-{uuid4().hex[:12]}"
    broker.client().put_topic(name, read_queue_nums=1, write_queue_nums=1)
    return name


def bodies(broker: BrokerProcess, topic: str) -> list[str]:
    return [message.text for message in broker.client().pull(topic, 0, 0, max=10_000).messages]


def test_send_is_stored_when_it_returns(shared_broker: BrokerProcess) -> None:
    topic = topic_of_one_queue(shared_broker)
    with Producer(shared_broker.endpoint, topic) as producer:
        assert producer.send("a", tags="t", keys=["k"]).queue_offset == 0
        assert producer.send(Message("b")).queue_offset == 1


def test_later_messages_are_stored_in_order_and_each_future_knows_its_place(
    shared_broker: BrokerProcess,
) -> None:
    topic = topic_of_one_queue(shared_broker)
    with Producer(shared_broker.endpoint, topic, batch_bytes=1000) as producer:
        futures = [producer.send_later(str(i)) for i in range(500)]
        results = [future.result(30) for future in futures]
    assert [result.queue_offset for result in results] == list(range(500))
    assert bodies(shared_broker, topic) == [str(i) for i in range(500)]


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_is_compressed_on_its_way_is_stored_as_it_was(shared_broker: BrokerProcess, coding: str) -> None:
    topic = topic_of_one_queue(shared_broker)
    texts = [f"{number} " + "abc" * 100 for number in range(100)]
    with TcpProxy(shared_broker.port) as proxy:
        with Producer(
            f"127.0.0.1:{proxy.port}", topic, linger_ms=FOR_EVER_MS, compression=coding
        ) as producer:
            for text in texts:
                producer.send_later(text)
        assert 0 < proxy.carried["to server"] < len(texts) * len(texts[0]) / 10
    assert bodies(shared_broker, topic) == texts


def test_flush_does_not_wait_for_the_linger(shared_broker: BrokerProcess) -> None:
    topic = topic_of_one_queue(shared_broker)
    with Producer(shared_broker.endpoint, topic, linger_ms=FOR_EVER_MS) as producer:
        future = producer.send_later("x")
        producer.flush()
        assert future.done()
        assert future.result().status == "SEND_OK"


def test_full_batch_does_not_wait_for_the_linger(shared_broker: BrokerProcess) -> None:
    topic = topic_of_one_queue(shared_broker)
    with Producer(shared_broker.endpoint, topic, linger_ms=FOR_EVER_MS, batch_bytes=100) as producer:
        futures = [producer.send_later("x" * 60) for _ in range(2)]
        assert futures[0].result(30).queue_offset == 0


def test_close_sends_what_is_waiting(shared_broker: BrokerProcess) -> None:
    topic = topic_of_one_queue(shared_broker)
    with Producer(shared_broker.endpoint, topic, linger_ms=FOR_EVER_MS) as producer:
        producer.send_later("last")
    assert bodies(shared_broker, topic) == ["last"]
    with pytest.raises(LakeMQError, match="PRODUCER_CLOSED"):
        producer.send_later("too late")


def test_bad_message_fails_alone(shared_broker: BrokerProcess) -> None:
    topic = topic_of_one_queue(shared_broker)
    with Producer(shared_broker.endpoint, topic, linger_ms=FOR_EVER_MS) as producer:
        good = producer.send_later("one")
        bad = producer.send_later("two", keys=["con\ntrol"])
        also_good = producer.send_later("three")
        producer.flush()
    assert isinstance(bad.exception(), InvalidRequest)
    assert (good.result().queue_offset, also_good.result().queue_offset) == (0, 1)
    assert bodies(shared_broker, topic) == ["one", "three"]


def test_messages_of_several_topics_go_to_their_own(shared_broker: BrokerProcess) -> None:
    first, second = topic_of_one_queue(shared_broker), topic_of_one_queue(shared_broker)
    with Producer(shared_broker.endpoint, first) as producer:
        producer.send_later("1")
        producer.send_later("2", topic=second)
        producer.send_later("3")
    assert bodies(shared_broker, first) == ["1", "3"]
    assert bodies(shared_broker, second) == ["2"]


def test_every_future_ends_when_the_broker_is_gone(broker: BrokerProcess) -> None:
    with Producer(broker.endpoint, "t") as producer:
        broker.kill()
        futures = [producer.send_later(str(i)) for i in range(10)]
    assert all(isinstance(future.exception(0), Unavailable) for future in futures)


def test_message_without_a_topic_is_refused_at_once(shared_broker: BrokerProcess) -> None:
    with Producer(shared_broker.endpoint) as producer, pytest.raises(InvalidRequest, match="TOPIC_ILLEGAL"):
        producer.send("x")


FORKS = """\
import os
import sys

import lakemq

producer = lakemq.Producer(sys.argv[1], "forked", linger_ms=300)
producer.send("before")
put_before = producer.send_later("put before")
child = os.fork()
who = "parent" if child else "child"
answers = {}
for number in range(50):
    answers[f"{who}-{number}"] = producer.send(f"{who}-{number}")
later = {f"{who}-later-{number}": producer.send_later(f"{who}-later-{number}") for number in range(50)}
producer.close()
answers |= {text: future.result(0) for text, future in later.items()}
if child:
    answers["put before"] = put_before.result(0)
    assert os.waitpid(child, 0)[1] == 0
text = "".join(f"{body},{sent.queue_id},{sent.queue_offset}\\n" for body, sent in answers.items())
os.write(1, text.encode())
os._exit(0)
"""


def test_a_forked_process_has_connections_and_a_sender_of_its_own(shared_broker: BrokerProcess) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, shared_broker.endpoint],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    said = [line.split(",") for line in ended.stdout.splitlines()]
    assert len({body for body, _, _ in said}) == len(said) == 201
    with shared_broker.client() as client:
        stored: dict[tuple[int, int], str] = {}
        for queue in client.queues("forked"):
            at = 0
            while at < queue.max_offset:
                pull = client.pull("forked", queue.queue_id, at, max=32)
                stored |= {(queue.queue_id, m.queue_offset): m.text for m in pull.messages}
                at = pull.next_offset
    assert {(int(queue), int(at)): body for body, queue, at in said}.items() <= stored.items()
    assert sorted(stored.values()) == sorted(["before", *(body for body, _, _ in said)])
