"""The client against a real broker: what is sent comes back the same, by every call."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemq import Client, Message
from lakemq.client import InvalidRequest, QueueRange
from tests.support.broker_process import BrokerProcess


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Client:
    return shared_broker.client()


@pytest.fixture
def topic(client: Client) -> str:
    """A topic of one queue, so that offsets are known."""
    name = f"t-{uuid4().hex[:12]}"
    client.put_topic(name, read_queue_nums=1, write_queue_nums=1)
    return name


def test_message_comes_back_as_it_was_sent(client: Client, topic: str) -> None:
    sent = client.send(
        topic,
        b"\x00\xffbytes",
        tags="created",
        keys=["17", "eu"],
        properties={"colour": "grün"},
        sharding_key="s",
    )
    assert (sent.status, sent.topic, sent.queue_id, sent.queue_offset) == ("SEND_OK", topic, 0, 0)
    for found in (
        client.message(sent.message_id),
        client.message(sent.offset_message_id),
        client.pull(topic, 0, 0).messages[0],
        client.query(topic, "eu")[0],
    ):
        assert found.message_id == sent.message_id
        assert found.body == b"\x00\xffbytes"
        assert (found.tags, found.keys) == ("created", ("17", "eu"))
        assert found.properties["colour"] == "grün"
        assert abs(found.store_timestamp - time.time() * 1000) < 60_000


def test_json_body_is_stored_as_json(client: Client, topic: str) -> None:
    client.send(topic, {"id": 17, "name": "grün"})
    assert client.pull(topic, 0, 0).messages[0].json() == {"id": 17, "name": "grün"}


def test_many_messages_are_stored_in_their_order(client: Client, topic: str) -> None:
    result = client.send_many(topic, [Message(str(i)) for i in range(100)])
    assert (result.status, result.count, result.queues) == ("SEND_OK", 100, (QueueRange(0, 0, 100),))
    pulled = client.pull(topic, 0, 0, max=1000)
    assert [message.text for message in pulled.messages] == [str(i) for i in range(100)]
    assert (pulled.status, pulled.next_offset, pulled.max_offset) == ("FOUND", 100, 100)


def test_full_results_say_where_each_message_is(client: Client, topic: str) -> None:
    result = client.send_many(topic, [Message("a", message_id="ID-A"), Message("b")], full_results=True)
    assert [one.queue_offset for one in result.results] == [0, 1]
    assert result.results[0].message_id == "ID-A"


def test_one_bad_message_of_many_stores_none_and_is_named(client: Client, topic: str) -> None:
    messages = [Message("good"), Message("bad", keys=["con\ntrol"]), Message("good")]
    with pytest.raises(InvalidRequest) as refused:
        client.send_many(topic, messages)
    assert refused.value.code == "MESSAGE_ILLEGAL"
    assert refused.value.context["index"] == 1
    assert client.send(topic, "next").queue_offset == 0


def test_repeat_with_the_same_key_stores_nothing(client: Client, topic: str) -> None:
    first = client.send(topic, "once", idempotency_key="k-1")
    again = client.send(topic, "once", idempotency_key="k-1")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.queue_offset == first.queue_offset
    assert client.send(topic, "next").queue_offset == 1


def test_a_key_used_for_another_message_is_refused_with_the_first_ones_place(
    client: Client, topic: str
) -> None:
    first = client.send(topic, "once", idempotency_key="k-2")
    with pytest.raises(InvalidRequest) as refused:
        client.send(topic, "another", idempotency_key="k-2")
    assert refused.value.code == "IDEMPOTENCY_KEY_REUSED"
    assert refused.value.context["first_message_id"] == first.message_id
    assert refused.value.context["first_queue_offset"] == first.queue_offset


def test_arrow_rows_go_in_and_come_out(client: Client, topic: str) -> None:
    rows = pa.table({"body": ["a", "b", "c"], "tags": ["x", "y", "x"], "keys": [["1"], ["2"], ["3"]]})
    assert client.send_arrow(topic, rows).count == 3
    pulled = client.pull_arrow(topic, 0, 0, columns=["queue_offset", "body", "keys"])
    assert pulled.batch.schema.names == ["queue_offset", "body", "keys"]
    assert pulled.batch.to_pylist()[2] == {"queue_offset": 2, "body": b"c", "keys": ["3"]}
    assert (pulled.status, pulled.next_offset, pulled.max_offset, pulled.damaged) == ("FOUND", 3, 3, ())


def test_arrow_pull_ends_at_the_given_offset_and_filters_by_tag(client: Client, topic: str) -> None:
    client.send_many(topic, [Message(str(i), tags="odd" if i % 2 else "even") for i in range(10)])
    pulled = client.pull_arrow(topic, 0, 2, end_offset=8, tags="odd", columns=["body"])
    assert pulled.batch.column("body").to_pylist() == [b"3", b"5", b"7"]
    assert pulled.next_offset == 8


def test_arrow_pull_at_the_end_is_an_empty_batch(client: Client, topic: str) -> None:
    pulled = client.pull_arrow(topic, 0, 0, columns=["body"])
    assert (pulled.batch.num_rows, pulled.status) == (0, "NO_NEW_MSG")
    assert pulled.batch.schema.names == ["body"]


def test_offset_out_of_range_is_a_status_not_silence(client: Client, topic: str) -> None:
    client.send(topic, "x")
    assert client.pull(topic, 0, 99).status == "OFFSET_ILLEGAL"


def test_long_poll_returns_when_a_message_arrives(client: Client, topic: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.pull, topic, 0, 0, wait_ms=15_000)
        client.send(topic, "here")
        assert [message.text for message in waiting.result(10).messages] == ["here"]


def test_offset_by_time_finds_the_first_message_since(client: Client, topic: str) -> None:
    client.send(topic, "old")
    stored = client.pull(topic, 0, 0).messages[0].store_timestamp
    assert client.offset_by_time(topic, 0, stored) == 0
    assert client.offset_by_time(topic, 0, stored + 3_600_000) == 1


def test_topic_is_created_changed_and_deleted(client: Client) -> None:
    name = f"t-{uuid4().hex[:12]}"
    created = client.put_topic(name, read_queue_nums=2, write_queue_nums=2)
    assert (created.read_queue_nums, created.write_queue_nums, created.system) == (2, 2, False)
    assert client.put_topic(name, read_queue_nums=3).write_queue_nums == 2
    assert name in {topic.topic for topic in client.topics()}
    client.delete_topic(name)
    with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
        client.topic(name)


def test_retry_topic_of_a_group_is_reached_by_its_name(client: Client) -> None:
    client.put_group("g-retry")
    assert client.topic("%RETRY%g-retry").topic == "%RETRY%g-retry"
    assert len(client.queues("%RETRY%g-retry")) == 1


def test_group_is_at_its_committed_offsets(client: Client, topic: str) -> None:
    client.send_many(topic, [Message(str(i)) for i in range(10)])
    group = client.put_group(f"g-{topic}", retry_max_times=3)
    assert (group.retry_max_times, group.consume_enable) == (3, True)
    client.commit_offsets(group.group, {(topic, 0): 7})
    assert client.group_offsets(group.group) == {(topic, 0): 7}
    preview = client.reset_offsets(group.group, topic, to="earliest", dry_run=True)
    assert [(move.from_offset, move.to_offset, move.redelivered) for move in preview] == [(7, 0, 7)]
    assert client.group_offsets(group.group) == {(topic, 0): 7}
    client.reset_offsets(group.group, topic, offsets={0: 2})
    assert client.group_offsets(group.group) == {(topic, 0): 2}
    client.delete_group(group.group)
    with pytest.raises(InvalidRequest, match="GROUP_NOT_EXIST"):
        client.group(group.group)


def test_second_owner_of_a_lease_is_refused_until_it_is_given_back(client: Client, topic: str) -> None:
    client.put_group(f"g-{topic}")
    first = client.acquire_lease(f"g-{topic}", "driver-1", 60_000)
    assert client.acquire_lease(f"g-{topic}", "driver-1", 60_000).epoch == first.epoch
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT") as conflict:
        client.acquire_lease(f"g-{topic}", "driver-2", 60_000)
    assert conflict.value.context["owner"] == "driver-1"
    client.release_lease(f"g-{topic}", "driver-1")
    second = client.acquire_lease(f"g-{topic}", "driver-2", 60_000)
    assert second.epoch > first.epoch
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        client.commit_offsets(f"g-{topic}", {(topic, 0): 0}, lease_epoch=first.epoch)


def test_cluster_and_route_name_the_broker(client: Client, topic: str) -> None:
    cluster = client.cluster()
    assert cluster["broker_name"] == "broker-a"
    assert cluster["delay_levels_ms"][0] == 1000
    assert client.route(topic)["queues"][0]["broker_name"] == "broker-a"
    assert client.ready()


def test_threads_share_one_client(client: Client, topic: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: client.send(topic, str(i)), range(200)))
    assert sorted(result.queue_offset for result in results) == list(range(200))


def test_a_list_longer_than_a_page_comes_whole(client: Client, topic: str) -> None:
    topics = [f"{topic}-{n:02}" for n in range(11)]
    for name in topics:
        client.put_topic(name, read_queue_nums=1_000, write_queue_nums=1_000)
    offsets = {(name, queue_id): 0 for name in topics for queue_id in range(1_000)}
    client.commit_offsets(f"g-{topic}", offsets)
    assert client.group_offsets(f"g-{topic}") == offsets
