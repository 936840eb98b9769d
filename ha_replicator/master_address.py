"""Finding a master: any broker of its name tells where it is.

Owns the questions to the HTTP API of another broker (``GET /api/v1/replication``).

Threads: the caller's; a call lasts no longer than `TIMEOUT_S` for each broker it asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from ha_replicator.identity import BrokerIdentity
from store_native.errors import Unavailable

TIMEOUT_S = 3.0


class MasterAddress:
    """Where the master of a broker name takes slaves.

    Args:
        endpoints: URLs of brokers that may know: the master's, or another slave's; ``ha://host:port`` is the
            answer itself.
        me: Who asks.
    """

    def __init__(self, endpoints: Sequence[str], me: BrokerIdentity) -> None:
        self._endpoints = tuple(endpoints)
        self._me = me
        self._pool = urllib3.PoolManager(timeout=TIMEOUT_S, retries=False, maxsize=1)

    def find(self) -> tuple[str, int]:
        """Returns host and port.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE; nobody that was asked is the master, or knows it.
        """
        for endpoint in self._endpoints:
            if endpoint.startswith("ha://"):
                parts = urlsplit(endpoint)
                return parts.hostname or "", parts.port or 0
        reasons = []
        asked: set[str] = set()
        waiting = list(self._endpoints)
        while waiting and len(asked) < 8:
            endpoint = waiting.pop(0)
            if endpoint in asked:
                continue
            asked.add(endpoint)
            try:
                status = self._ask(endpoint)
            except (HTTPError, OSError, ValueError) as error:
                reasons.append(f"{endpoint}: {error}")
                continue
            if (status.get("cluster"), status.get("broker_name")) != (self._me.cluster, self._me.broker_name):
                reasons.append(f"{endpoint} is {status.get('broker_name')} of {status.get('cluster')}")
            elif status.get("role") == "slave":
                reasons.append(f"{endpoint} is a slave itself")
                waiting += [url for url in [status.get("master")] if isinstance(url, str)]
            elif not isinstance(status.get("ha_port"), int):
                reasons.append(f"{endpoint} takes no slaves: it runs without --ha-port")
            else:
                return urlsplit(endpoint).hostname or "", int(status["ha_port"])
        raise Unavailable("SERVICE_NOT_AVAILABLE", f"no master was found: {'; '.join(reasons)}")

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def _ask(self, endpoint: str) -> dict[str, Any]:
        answer = self._pool.request("GET", f"{endpoint}/api/v1/replication")
        if answer.status != 200:
            raise ValueError(f"it answered {answer.status}")
        found = answer.json()
        if not isinstance(found, dict):
            raise ValueError("it answered something else")
        return found
