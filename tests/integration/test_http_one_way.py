"""One-way sends (``Prefer: respond-async``): answered before their flush, and counted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemq import Message, Producer, aio
from lakemq.client import Client, OutcomeUnknown
from store_native.errors import Closed
from tests.support.broker_process import BrokerProcess
from tests.support.faulty_disk import FaultyDisk
from tests.support.http import Http
from tests.support.metrics import Samples
from tests.support.waiting import wait_until

JSON = "application/json"


@pytest.mark.parametrize("query", [{}, {"results": "full"}], ids=["fast path", "slow path"])
def test_a_one_way_send_is_answered_though_its_flush_fails_later(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, query: dict[str, str]
) -> None:
    """The flush takes a second and fails: a send that waited for it would be answered 503."""
    disk = FaultyDisk(tmp_path)
    broker = start_broker(environment=disk.environment)
    http = Http(broker.endpoint)
    assert http.send("t", b'{"body":"safe"}', JSON).status == 200
    http.settle()
    disk.slow_down()
    disk.fail()
    answer = http.send("t", b'{"body":"hoped for"}', JSON, {"Prefer": "respond-async"}, **query)
    assert (answer.status, answer.json["status"]) == (202, "SEND_OK")
    assert answer.headers["preference-applied"] == "respond-async"
    wait_until(lambda: http.get("//readyz").status == 503)
    http.get("//readyz").problem(503, "STORE_POISONED")
    page = Samples(http.get("//metrics").body.decode())
    counted = [
        sample.value for sample in page.named("lakemq_messages_in_total") if sample.labels["topic"] == "t"
    ]
    assert counted == [2]


def test_a_clients_one_way_send_waits_for_no_flush(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    disk = FaultyDisk(tmp_path)
    broker = start_broker(environment=disk.environment)
    Http(broker.endpoint).send("t", b'{"body":"safe"}', JSON)
    Http(broker.endpoint).settle()
    disk.slow_down()
    disk.fail()
    with broker.client() as client:
        client.send_one_way("t", "hoped for")
        wait_until(lambda: Http(broker.endpoint).get("//readyz").status == 503)
        with pytest.raises(Closed, match="STORE_POISONED"):
            client.send_one_way("t", "refused")  # what a broker refuses is told


def test_one_way_messages_are_stored_once_by_producers_of_both_kinds(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()

    async def send() -> None:
        async with aio.Producer(broker.endpoint, "t") as producer:
            await producer.send_one_way("from a task", queue_id=0)
        async with aio.Client(broker.endpoint) as client:
            await client.send_one_way("t", Message("from a client", queue_id=0))

    with Producer(broker.endpoint, "t") as producer:
        assert producer.send_one_way({"a": 1}, queue_id=0) is None  # type: ignore[func-returns-value]  # it says nothing
        with Client(broker.endpoint) as client:
            client.send_one_way("u", "with a key", keys=["21"], queue_id=0)
        producer.send_one_way("of another topic", topic="u", queue_id=0)
    with pytest.raises(Closed):
        producer.send_one_way("too late")
    asyncio.run(send())
    with broker.client() as client:
        wait_until(lambda: client.queues("t")[0].max_offset == 3)
        found = [message.body for message in client.pull("t", 0, 0).messages]
        assert found == [b'{"a":1}', b"from a task", b"from a client"]
        wait_until(lambda: client.queues("u")[0].max_offset == 2)
        assert [message.keys for message in client.pull("u", 0, 0).messages] == [("21",), ()]


@pytest.mark.parametrize("patience", [{"retries": 3}, {"retry_until": 30.0}])
def test_one_way_send_without_an_answer_is_not_repeated(patience: dict[str, float]) -> None:
    requests = 0

    def hang_up(server: socket.socket) -> None:
        nonlocal requests
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                requests += connection.recv(1 << 16).startswith(b"POST ")

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        ended = threads.submit(hang_up, server)
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        with Client(endpoint, routed=False, **patience) as client, pytest.raises(OutcomeUnknown):  # type: ignore[arg-type]  # both are numbers
            client.send_one_way("t", "once")
        server.shutdown(socket.SHUT_RDWR)
        ended.result(30)
    assert requests == 1
