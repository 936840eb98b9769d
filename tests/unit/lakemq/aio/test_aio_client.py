"""Whose threads the clients of single brokers use, and who closes them."""

from __future__ import annotations

import asyncio

import pytest

from lakemq import aio
from lakemq.client import Closed

NAMES = "http://127.0.0.1:1,http://127.0.0.1:2"


def test_a_brokers_client_that_is_closed_leaves_the_others_their_threads() -> None:
    async def scenario() -> None:
        client = aio.Client(NAMES)
        async with await client.broker("broker-a") as broker:
            assert broker.threads is client.threads
        assert await client.threads.run(int, "7") == 7
        assert await broker.threads.run(int, "8") == 8, "it lives as long as the client it is from"
        await client.close()
        with pytest.raises(Closed, match="the client is closed"):
            await client.broker("broker-a")

    asyncio.run(scenario())
