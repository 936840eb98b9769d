"""Whether a broker name has a master that answers, which a promotion asks before it makes another one.

Owns the questions: to the master that the slave is configured with, and to the one that name servers know.

Invariants: all together they last no longer than `LIVING_S`; one that hangs hides no answer of another.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ha_replicator.http_question import ask
from ha_replicator.identity import MASTER_ID, BrokerIdentity
from ha_replicator.master_address import MasterAddress
from lakemq.tls.trust import Trust
from store_native.errors import LakeMQError

LIVING_S = 1.0
"""How long a promotion waits to hear whether a master lives: one that does not answer costs it so much."""


@dataclass(frozen=True, slots=True)
class LivingMaster:
    """A master that answers and is ready.

    Attributes:
        endpoint: Where it answers.
        epoch: The highest that it heard of.
        end: Of its log.
    """

    endpoint: str
    epoch: int
    end: int


class LivingMasters:
    """Asks for the master of one broker name.

    Args:
        addresses: Asks brokers for the master.
        configured: URL of the master that this slave is configured with; empty: none. One whose replication
            port alone is known is not asked: it may be a RocketMQ broker.
        nameservers: URLs; each is asked for the master that is registered with it.
        me: Who asks.
        trust: Whose certificates are believed.
    """

    def __init__(
        self,
        addresses: MasterAddress,
        configured: str,
        nameservers: Sequence[str],
        me: BrokerIdentity,
        trust: Trust,
    ) -> None:
        self._addresses = addresses
        self._configured = configured
        self._nameservers = nameservers
        self._me = me
        self._trust = trust

    async def find(self) -> LivingMaster | None:
        """Returns the one of the highest epoch that answers in `LIVING_S`; None: none does."""
        questions = [self._at(self._configured), *(self._known_to(url) for url in self._nameservers)]
        tasks = [asyncio.ensure_future(question) for question in questions]
        try:
            done, _ = await asyncio.wait(tasks, timeout=LIVING_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        found = [master for task in done if (master := task.result()) is not None]
        return max(found, key=lambda master: master.epoch, default=None)

    async def _at(self, endpoint: str) -> LivingMaster | None:
        """Asks a broker that may be the master, or know it."""
        try:
            asked = [endpoint] if endpoint else []
            found_at, status = await self._addresses.ask_for_master(asked, takes_slaves=False)
            if status is None or (await ask(found_at, "/readyz", trust=self._trust)).status != 200:
                return None
            return LivingMaster(found_at, int(status["epoch"]), int(status["appended"]))
        except (LakeMQError, OSError, TimeoutError, ValueError, TypeError, KeyError):
            return None

    async def _known_to(self, nameserver: str) -> LivingMaster | None:
        """Asks the master that is registered with a name server."""
        try:
            brokers = (await ask(nameserver, "/api/v1/cluster", trust=self._trust)).content["brokers"]
            endpoint = next(filter(None, map(self._master_in, brokers)), None)
        except (OSError, TimeoutError, ValueError, TypeError, KeyError):
            return None
        return await self._at(endpoint) if endpoint is not None else None

    def _master_in(self, registered: dict[str, Any]) -> str | None:
        if (registered["cluster"], registered["broker_name"]) != (self._me.cluster, self._me.broker_name):
            return None
        address = registered["addresses"].get(str(MASTER_ID))
        return address if isinstance(address, str) else None
