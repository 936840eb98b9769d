"""The asyncio client and producer, against real brokers.

Contract: names, arguments, results and errors are the synchronous ones'; calls go on at the same time, so
many as there are threads; what is cancelled before it runs is not done, and what runs goes to its end.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import lakemq
from lakemq import aio
from lakemq.aio.threads import CallThreads
from lakemq.client import Closed, InvalidRequest, Message
from tests.support.broker_process import BrokerProcess
from tests.support.name_servers import BrokersOfCluster
from tests.support.waiting import wait_until_async


def public(owner: type) -> dict[str, Any]:
    return {name: member for name, member in vars(owner).items() if not name.startswith("_")}


def calls_of(owner: type) -> dict[str, inspect.Signature]:
    """The public methods by name, those of the bases too."""
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__[:-1]):
        found |= public(base)
    return {name: inspect.signature(member) for name, member in found.items() if inspect.isfunction(member)}


@pytest.mark.parametrize(("owner", "awaited"), [(lakemq.Client, aio.Client), (lakemq.Producer, aio.Producer)])
def test_every_call_is_there_with_its_arguments(owner: type, awaited: type) -> None:
    # How the client finds out whom to ask is its own.
    own = {"lane", "known_lane", "refused_by_name_server", "look_for_name_server", "check_broker_name"}
    of_both = {name: signature for name, signature in calls_of(owner).items() if name not in own}
    found = calls_of(awaited)
    assert found.keys() == of_both.keys()
    for name, signature in of_both.items():
        assert list(found[name].parameters) == list(signature.parameters), name
        assert inspect.iscoroutinefunction(public(awaited)[name]), name


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersOfCluster]:
    with BrokersOfCluster(tmp_path_factory.mktemp("cluster")) as started:
        for name in ("broker-a", "broker-b"):
            started.master(name)
        yield started


def test_a_message_is_sent_read_and_administered(shared_broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with aio.Client(shared_broker.endpoint) as client:
            await client.put_topic("aio", read_queue_nums=1, write_queue_nums=1)
            waiting = asyncio.create_task(client.pull("aio", 0, 0, wait_ms=10_000))
            sent = await client.send("aio", {"id": 17}, keys=["17"])
            pulled = await waiting
            assert [message.message_id for message in pulled.messages] == [sent.message_id]
            assert (await client.send_many("aio", [Message("x"), Message("y")])).count == 2
            assert [queue.max_offset for queue in await client.queues("aio")] == [3]
            with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
                await client.topic("nobody-has-it")
        with pytest.raises(Closed):
            await client.send("aio", "late")

    asyncio.run(scenario())


def test_a_producer_gathers_messages_in_their_order(shared_broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with aio.Client(shared_broker.endpoint) as client:
            await client.put_topic("aio-later", read_queue_nums=1, write_queue_nums=1)
            async with aio.Producer(client, "aio-later", linger_ms=60_000) as producer:
                futures = [await producer.send_later(str(number)) for number in range(50)]
                await producer.flush()
                results = [await future for future in futures]
                assert [result.queue_offset for result in results] == list(range(50))
                assert (await producer.send("now")).queue_offset == 50
            assert await client.ready(), "a client that is shared is not closed"
        async with aio.Producer(shared_broker.endpoint, "aio-later") as own:
            last = await own.send_later("last")
        assert (await last).queue_offset == 51, "it was flushed"

    asyncio.run(scenario())


def test_brokers_are_clients_that_are_awaited_too(cluster: BrokersOfCluster) -> None:
    async def scenario() -> None:
        async with aio.Client(cluster.endpoint) as client:
            await client.put_topic("aio")
            brokers = await client.brokers()
            assert set(brokers) == {"broker-a", "broker-b"}
            sent = await asyncio.gather(*(brokers[name].send("aio", name) for name in brokers))
            assert [result.broker_name for result in sent] == list(brokers)
            found = await asyncio.gather(*(client.message(result.message_id) for result in sent))
            assert [message.text for message in found] == list(brokers), "as the class's example has it"
            assert (await (await client.broker("broker-b")).topic("aio")).topic == "aio"

    asyncio.run(scenario())


def test_so_many_calls_run_as_there_are_threads_and_a_cancelled_one_keeps_its_place() -> None:
    begun: list[int] = []
    go = threading.Event()

    def call(number: int) -> int:
        begun.append(number)
        go.wait()
        return number

    async def scenario() -> None:
        threads = CallThreads(2, "client")
        tasks = [asyncio.create_task(threads.run(partial(call, number))) for number in range(4)]
        await wait_until_async(lambda: len(begun) == 2)
        tasks[0].cancel()
        tasks[2].cancel()
        done, _ = await asyncio.wait([tasks[0], tasks[2]])
        assert all(task.cancelled() for task in done)
        assert begun == [0, 1], "the place of one that runs on is not free"
        go.set()
        assert list(await asyncio.gather(tasks[1], tasks[3])) == [1, 3]
        await threads.close()

    asyncio.run(scenario())
    assert begun == [0, 1, 3]
