"""Which brokers a sink sends to, as its endpoint says and its checkpoint notes, against a real name server.

Contract: what a batch was sent to is in the checkpoint before anything is sent, one broker's name too; a name
that nobody has is refused; a name server that does not answer is never taken for a broker.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakemq.client import Client, InvalidRequest, Unavailable
from structured_streaming.options import WriteOptions, parse_write
from structured_streaming.sink.fixed_brokers import FILE, with_brokers
from structured_streaming.sink.sender import send_all
from tests.support.name_servers import BrokersOfCluster

BOTH = ("broker-a", "broker-b")
ROWS = pa.table({"body": [f"{number}" for number in range(40)]})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersOfCluster]:
    with BrokersOfCluster(tmp_path_factory.mktemp("cluster")) as started:
        for name in BOTH:
            started.master(name)
        yield started


def made(cluster: BrokersOfCluster, topic: str) -> str:
    with Client(cluster.endpoint) as client:
        client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    cluster.wait_for_topic(topic, *BOTH)
    return topic


def options_of(endpoint: str, topic: str, **given: str) -> WriteOptions:
    return parse_write({"endpoint": endpoint, "topic": topic, "rowsPerRequest": "5", **given})


def noted(checkpoint: Path) -> list[str]:
    found: list[str] = json.loads((checkpoint / FILE).read_text())["brokers"]
    return found


def send(options: WriteOptions, checkpoint: Path) -> None:
    """Sends the same batch of a query."""
    chosen = with_brokers(options, {"checkpointLocation": str(checkpoint)}, streaming=True)
    send_all(chosen, "spark/query/0/0", iter(ROWS.to_batches()))


def stored(cluster: BrokersOfCluster, topic: str) -> dict[str, int]:
    with Client(cluster.endpoint) as client:
        return {
            name: sum(queue.max_offset for queue in broker.queues(topic))
            for name, broker in client.brokers(topic).items()
        }


def test_a_batch_of_one_brokers_address_goes_there_again_through_the_name_server(
    cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "began-with-one")
    send(options_of(cluster.brokers["broker-a"].endpoint, topic), tmp_path)
    assert noted(tmp_path) == ["broker-a"]
    send(options_of(cluster.endpoint, topic), tmp_path)
    assert stored(cluster, topic) == {"broker-a": 40, "broker-b": 0}
    with pytest.raises(InvalidRequest, match="is broker broker-b"):
        send(options_of(cluster.brokers["broker-b"].endpoint, topic), tmp_path)


def test_a_checkpoint_that_does_not_say_where_its_batches_went_is_refused(
    cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "older")
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    with pytest.raises(InvalidRequest, match=r"give the option brokers.*: broker-a, broker-b"):
        send(options_of(cluster.endpoint, topic), tmp_path)
    send(options_of(cluster.endpoint, topic, brokers="broker-b"), tmp_path)
    assert noted(tmp_path) == ["broker-b"]
    send(options_of(cluster.endpoint, topic), tmp_path)
    assert stored(cluster, topic) == {"broker-a": 0, "broker-b": 40}


def test_where_the_list_cannot_be_kept_it_is_asked_for(cluster: BrokersOfCluster) -> None:
    several = options_of(cluster.endpoint, "t")
    for location in ({}, {"checkpointlocation": "s3a://bucket/c"}):
        with pytest.raises(InvalidRequest, match="give the option brokers"):
            with_brokers(several, location, streaming=True)
    with pytest.raises(InvalidRequest, match="a job with a name"):
        with_brokers(replace(several, name="load"), {}, streaming=False)
    one = options_of(cluster.brokers["broker-a"].endpoint, "t")
    assert with_brokers(one, {}, streaming=True) == one, "one broker alone needs none"


def test_the_order_of_the_names_is_of_no_account(cluster: BrokersOfCluster, tmp_path: Path) -> None:
    topic = made(cluster, "any-order")
    for names in ("broker-b, broker-a", "broker-a,broker-b", ""):
        send(options_of(cluster.endpoint, topic, **({"brokers": names} if names else {})), tmp_path)
    assert sum(stored(cluster, topic).values()) == 40
    assert noted(tmp_path) == list(BOTH)


def test_a_name_that_nobody_has_is_refused(cluster: BrokersOfCluster, tmp_path: Path) -> None:
    topic = made(cluster, "nobody")
    for endpoint in (cluster.endpoint, cluster.brokers["broker-a"].endpoint):
        with pytest.raises(InvalidRequest, match=r"names nonsense, which nobody knows.*broker-a"):
            send(options_of(endpoint, topic, brokers="broker-a,nonsense"), tmp_path)
    with Client(cluster.endpoint) as client:
        assert set(client.brokers(topic)) == set(BOTH)


def test_a_name_server_that_is_away_is_waited_for_and_not_taken_for_a_broker(
    cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    topic = made(cluster, "names-away")
    names = cluster.name_servers[0]
    names.kill()
    failures: list[Exception] = []

    def write() -> None:
        try:
            send(options_of(names.url, topic), tmp_path / "waits")
        except Exception as error:  # noqa: BLE001 - raised again by the test's thread
            failures.append(error)

    writing = threading.Thread(target=write)
    try:
        with pytest.raises(Unavailable, match="whom to send to is not known"):
            send(options_of(names.url, topic, retryTimeoutMs="100"), tmp_path / "refused")
        assert not (tmp_path / "refused" / FILE).exists()
        writing.start()
    finally:
        names.start()
    writing.join()
    assert failures == []
    cluster.wait_for_topic(topic, *BOTH)
    assert sum(stored(cluster, topic).values()) == 40
