"""Finding a master: any broker of its name tells where it is.

Owns the question to the HTTP API of another broker (``GET /api/v1/replication``) and what is believed of its
answer.

Invariants: a question lasts no longer than `TIMEOUT_S`, its answer is no longer than `MAX_ANSWER_BYTES`, and
what is repeated of it is short and printable.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httptools

from ha_replicator.identity import BrokerIdentity
from store_native.errors import Unavailable

TIMEOUT_S = 3.0
MAX_ANSWER_BYTES = 1 << 20
MOST_ASKED = 8


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

    async def find(self) -> tuple[str, int]:
        """Returns host and port.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE; nobody that was asked is the master, or knows it.
        """
        reasons: list[str] = []
        asked: set[str] = set()
        waiting = list(self._endpoints)
        while waiting and len(asked) < MOST_ASKED:
            endpoint = waiting.pop(0)
            if endpoint in asked:
                continue
            asked.add(endpoint)
            place = urlsplit(endpoint)
            try:
                if place.scheme == "ha":
                    return place.hostname or "", place.port or 0
                async with asyncio.timeout(TIMEOUT_S):
                    status = await _ask(place.hostname or "", place.port or 80)
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
                waiting += [url for url in [status.get("master")] if isinstance(url, str) and len(url) < 300]
            elif not isinstance(port, int) or not 0 < port < 1 << 16:
                reasons.append(f"{endpoint} takes no slaves: it runs without --ha-port")
            else:
                return place.hostname or "", port
        raise Unavailable("SERVICE_NOT_AVAILABLE", f"no master was found: {'; '.join(reasons)}")


class _Answer:
    """Collects what `httptools` finds."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self.body += data

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.complete = True


async def _ask(host: str, port: int) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        shown = f"[{host}]" if ":" in host else host
        writer.write(
            f"GET /api/v1/replication HTTP/1.1\r\nHost: {shown}:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = _Answer()
        parser = httptools.HttpResponseParser(answer)
        arrived = 0
        while not answer.complete and (data := await reader.read(1 << 16)):
            arrived += len(data)
            if arrived > MAX_ANSWER_BYTES:
                raise ValueError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
            parser.feed_data(data)
        if not answer.complete or parser.get_status_code() != 200:
            raise ValueError("it gave no answer of a broker")
        found = json.loads(bytes(answer.body))
    except (httptools.HttpParserError, RecursionError) as error:
        raise ValueError("it gave no answer of a broker") from error
    finally:
        writer.transport.abort()
    if not isinstance(found, dict):
        raise ValueError("it gave no answer of a broker")
    return found
