"""The time-outs of the asyncio producer hold whatever its threads do."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from lakemq import aio
from lakemq.lanes import Lanes
from store_native.errors import InvalidRequest
from tests.support.scripted_network import ENDPOINT, ScriptedNetwork
from tests.support.waiting import wait_until_async

LONG_S = 30.0  # half of what a send without a fate waits for one


def client_of(network: ScriptedNetwork, pool_size: int) -> aio.Client:
    client = aio.Client(ENDPOINT, pool_size=pool_size)
    client.synchronous = network.client()
    return client


def have_a_client(producer: aio.Producer, network: ScriptedNetwork) -> None:
    """Gives a producer another client of its own: the one it made has a real network."""
    client = network.client()
    producer._producer._client = client  # noqa: SLF001
    producer._producer._lanes = Lanes(client)  # noqa: SLF001


def test_a_flush_does_not_wait_for_a_thread() -> None:
    network = ScriptedNetwork()

    async def scenario() -> None:
        client = client_of(network, 1)
        producer = aio.Producer(client, "t", linger_ms=3_600_000)
        lingers = await producer.send_later("lingers")
        taking = asyncio.create_task(producer.send("takes the thread"))
        await wait_until_async(lambda: not network.is_idle())
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="1 messages"):
            await producer.flush(0.1)
        assert time.monotonic() - began < LONG_S
        network.decide_all("answered")
        await asyncio.gather(taking, lingers)
        await producer.close()
        await client.close()

    asyncio.run(scenario())


def test_a_close_does_not_wait_longer_than_it_may_for_a_send_that_goes_on() -> None:
    network = ScriptedNetwork()

    async def scenario() -> None:
        producer = aio.Producer(ENDPOINT, "t")
        have_a_client(producer, network)
        sending = asyncio.create_task(producer.send("x"))
        await wait_until_async(lambda: not network.is_idle())
        began = time.monotonic()
        await producer.close(0.1)
        assert time.monotonic() - began < LONG_S
        assert not sending.done()
        network.decide_all("answered")
        assert (await sending).status == "SEND_OK"

    asyncio.run(scenario())


def test_a_close_that_may_wait_waits_for_the_sends_under_way() -> None:
    network = ScriptedNetwork()

    async def scenario() -> None:
        producer = aio.Producer(ENDPOINT, "t")
        have_a_client(producer, network)
        sending = asyncio.create_task(producer.send("x"))
        await wait_until_async(lambda: not network.is_idle())
        closing = asyncio.create_task(producer.close(60.0))
        await wait_until_async(lambda: network.closed)
        assert not closing.done()
        network.decide_all("answered")
        await closing
        assert (await sending).status == "SEND_OK"

    asyncio.run(scenario())


@pytest.mark.parametrize("most", [0, -1, "2", 1.5, True, 10_001])
def test_a_number_of_sends_that_cannot_be_is_refused(most: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"calls at a time: is {most!r}, it is a whole number"):
        aio.Producer(ENDPOINT, "t", most_sends=most)


def test_a_field_of_the_wrong_type_is_refused_by_its_name() -> None:
    async def scenario() -> None:
        network = ScriptedNetwork()
        client, keys = client_of(network, 1), cast(list[str], [17])
        producer = aio.Producer(client, "t")
        for call in (producer.send, producer.send_later, producer.send_one_way):
            with pytest.raises(InvalidRequest, match=r"keys\[0\] must be a string, not int$"):
                await call("x", keys=keys)
        with pytest.raises(InvalidRequest, match=r"keys\[0\] must be a string, not int$"):
            await client.send("t", "x", keys=keys)
        await producer.close()
        await client.close()
        assert network.is_idle()

    asyncio.run(scenario())


@pytest.mark.parametrize("until", ["3", -1, True])
def test_a_time_that_is_none_is_refused_before_a_send_waits(until: Any) -> None:
    async def scenario() -> None:
        network = ScriptedNetwork()
        producer = aio.Producer(client_of(network, 1), "t")
        with pytest.raises(InvalidRequest, match="retry_until: is "):
            await producer.send("x", retry_until=until)
        with pytest.raises(InvalidRequest, match="retry_until: is "):
            await client_of(network, 1).send("t", "x", retry_until=until)
        assert network.is_idle()

    asyncio.run(scenario())
