"""Finding a master: any broker of its name tells where it is.

Owns the question to the HTTP API of another broker (``GET /api/v1/replication``) and what is believed of its
answer.

Invariants: what is repeated of an answer is short and printable. A broker that was asked over TLS leads to
no master without it.

Threads: the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from ha_replicator.http_question import TIMEOUT_S, ask
from ha_replicator.identity import BrokerIdentity
from ha_replicator.link_place import LinkPlace
from lakemq.tls.trust import Trust
from store_native.errors import Unavailable

MOST_ASKED = 8


class MasterAddress:
    """Where the master of a broker name takes slaves.

    Args:
        endpoints: URLs of brokers that may know: the master's, or another slave's; ``ha://host:port`` is the
            answer itself.
        me: Who asks.
        trust: Whose certificates are believed.
        tls_at_given: A master whose replication port is given itself speaks TLS there.

    Attributes:
        found_at: The endpoint of the master that was found last; None: none was, or its address was given.
    """

    def __init__(
        self, endpoints: Sequence[str], me: BrokerIdentity, trust: Trust, *, tls_at_given: bool = False
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._me = me
        self._trust = trust
        self._tls_at_given = tls_at_given
        self.found_at: str | None = None

    async def find(self) -> LinkPlace:
        """Returns the place.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE; nobody that was asked is the master, or knows it.
        """
        endpoint, status = await self.ask_for_master(self._endpoints, takes_slaves=True)
        place = urlsplit(endpoint)
        if status is None:
            tls = self._trust.context() if self._tls_at_given else None
            return LinkPlace(place.hostname or "", place.port or 0, tls)
        self.found_at = endpoint
        tls = self._trust.context() if place.scheme == "https" else None
        return LinkPlace(place.hostname or "", status["ha_port"], tls)

    async def ask_for_master(
        self, endpoints: Sequence[str], *, takes_slaves: bool
    ) -> tuple[str, dict[str, Any] | None]:
        """Asks brokers one after the other, and those that they name, until one is the master.

        Args:
            endpoints: Whom first.
            takes_slaves: Whether it must.

        Returns:
            Its endpoint and what it says of itself; None of one whose replication port alone is known.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE; as :meth:`find`.
        """
        reasons: list[str] = []
        asked: set[str] = set()
        waiting = list(endpoints)
        while waiting and len(asked) < MOST_ASKED:
            endpoint = waiting.pop(0)
            if endpoint in asked:
                continue
            asked.add(endpoint)
            scheme = urlsplit(endpoint).scheme
            try:
                if scheme == "ha":
                    return endpoint, None
                answer = await ask(endpoint, "/api/v1/replication", trust=self._trust)
                if answer.status != 200:
                    raise ValueError(_no_broker(answer.content.get("detail")))
                status = answer.content
            except TimeoutError:
                reasons.append(f"{endpoint} did not answer within {TIMEOUT_S:g} s")
                continue
            except (OSError, ValueError) as error:
                reasons.append(f"{endpoint}: {error}")
                continue
            port = status.get("ha_port")
            if (status.get("cluster"), status.get("broker_name")) != (self._me.cluster, self._me.broker_name):
                who = f"{status.get('broker_name')!a:.130} of {status.get('cluster')!a:.130}"
                reasons.append(f"{endpoint} is {who}")
            elif status.get("role") == "slave":
                reasons.append(f"{endpoint} is a slave itself")
                url = status.get("master")
                if isinstance(url, str) and len(url) < 300:
                    if scheme == "https" and not url.startswith("https://"):
                        reasons.append(f"{endpoint} names a master without TLS, which is not followed")
                    else:
                        waiting.append(url)
            elif takes_slaves and not (isinstance(port, int) and 0 < port < 1 << 16):
                reasons.append(f"{endpoint} takes no slaves: it runs without --ha-port")
            else:
                return endpoint, status
        raise Unavailable("SERVICE_NOT_AVAILABLE", f"no master was found: {'; '.join(reasons)}")


def _no_broker(detail: object) -> str:
    said = f": {detail!a:.200}" if isinstance(detail, str) else ""
    return f"it gave no answer of a broker{said}"
