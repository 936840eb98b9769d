"""Whether a master lives: one that hangs ends no promotion and hides no answer of another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ha_replicator.identity import BrokerIdentity
from ha_replicator.living_master import LivingMaster, LivingMasters
from ha_replicator.master_address import MasterAddress
from lakemq.tls.trust import Trust

HANGS = "http://hangs:8090"
ME = BrokerIdentity("c", "a", 1)


class Addresses:
    """Brokers that are asked for the master: one hangs, the others are it."""

    def __init__(self) -> None:
        self.hanging = 0

    async def ask_for_master(
        self, endpoints: Sequence[str], *, takes_slaves: bool
    ) -> tuple[str, dict[str, Any] | None]:
        (endpoint,) = endpoints
        if endpoint == HANGS:
            self.hanging += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.hanging -= 1
        return endpoint, {"epoch": 7, "appended": 70}


async def serve(ready: int) -> tuple[asyncio.Server, str]:
    """A process that is name server and master at once: it is registered with itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        master = {"cluster": "c", "broker_name": "a", "addresses": {"0": url}}
        body = json.dumps({"brokers": [master]} if path == b"/api/v1/cluster" else {}).encode()
        status = 200 if path == b"/api/v1/cluster" else ready
        writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    return server, url


@pytest.mark.parametrize("ready", [None, 200, 503])
def test_a_promotion_waits_a_second_for_a_master_that_hangs_and_hears_of_another(ready: int | None) -> None:
    async def scenario() -> None:
        addresses = Addresses()
        server, url = await serve(ready or 200)
        known = [] if ready is None else [url]
        living = LivingMasters(cast(MasterAddress, addresses), HANGS, known, ME, Trust())
        async with server:
            # The one that hangs would never answer.
            found = await asyncio.wait_for(living.find(), 60)
        assert found == (LivingMaster(url, 7, 70) if ready == 200 else None)
        assert addresses.hanging == 0, "nobody is asked any more"

    asyncio.run(scenario())
