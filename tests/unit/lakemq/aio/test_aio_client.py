"""Whose threads the clients of single brokers use, who closes them, and how long a call waits for one."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from lakemq import aio
from lakemq.client import Closed, Unavailable
from tests.support.waiting import wait_until_async

NAMES = "http://127.0.0.1:1,http://127.0.0.1:2"


def test_a_brokers_client_that_is_closed_leaves_the_others_their_threads() -> None:
    async def scenario() -> None:
        client = aio.Client(NAMES)
        async with await client.broker("broker-a") as broker:
            assert broker.threads is client.threads
        assert await client.threads.run(lambda: 7) == 7
        assert await broker.threads.run(lambda: 8) == 8, "it lives as long as the client it is from"
        await client.close()
        with pytest.raises(Closed, match="the client is closed"):
            await client.broker("broker-a")

    asyncio.run(scenario())


def test_a_call_waits_for_a_thread_as_long_as_it_may_last_and_does_nothing_then() -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> bool:
        held.set()
        return go.wait()

    async def scenario() -> None:
        client = aio.Client("http://127.0.0.1:1", pool_size=1, timeout_s=0.1)
        producer = aio.Producer(client, "t")
        taken = asyncio.create_task(client.threads.run(hold))
        await wait_until_async(held.is_set)
        began = time.monotonic()
        for call in (client.topics(), client.brokers(), client.broker("a"), producer.send("x")):
            with pytest.raises(Unavailable, match=r"all 1 calls of the client .* under way for 0\.1 s"):
                await call
        with pytest.raises(Unavailable, match=r"for 0\.2 s"):
            await client.send("t", "x", retry_until=0.2)
        assert time.monotonic() - began < 10
        go.set()
        assert await taken
        assert await client.threads.run_within(0.1, lambda: 7) == 7, "its place is free again"
        await client.close()

    asyncio.run(scenario())
