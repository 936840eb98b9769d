"""Plain HTTP for tests of the API: urllib3, and raw sockets for what no client library would send."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import urllib3

from tests.support.metrics import Samples

API = "/api/v1"


@dataclass(frozen=True)
class Reply:
    """An answer, parsed when it is JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def problem(self, status: int, code: str) -> dict[str, Any]:
        """Checks that this is a problem of that status and code, in full form; returns it."""
        assert self.headers.get("content-type") == "application/problem+json", (self.status, self.body[:300])
        problem: dict[str, Any] = self.json
        assert (self.status, problem["code"]) == (status, code), problem
        assert problem["status"] == status
        assert {"type", "title", "detail", "instance", "retryable", "request_id"} <= problem.keys()
        assert "Traceback" not in problem["detail"]
        return problem


class Http:
    """Talks to one broker."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._pool = urllib3.PoolManager(retries=False, timeout=60.0, maxsize=64)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        """Sends one request; ``path`` is below /api/v1 unless it starts with ``//``.

        A body in pieces goes in chunks.
        """
        url = self.endpoint + (path[1:] if path.startswith("//") else API + path)
        if query:
            url += "?" + "&".join(f"{name}={value}" for name, value in query.items())
        answer = self._pool.request(method, url, body=body, headers=headers or {}, redirect=False)
        return Reply(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.data)

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Reply:
        """GET."""
        return self.call("GET", path, headers=headers, **query)

    def put(self, path: str, document: Any) -> Reply:
        """PUT of JSON."""
        return self.call("PUT", path, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def post(self, path: str, document: Any, headers: dict[str, str] | None = None, **query: Any) -> Reply:
        """POST of JSON."""
        body = json.dumps(document).encode()
        return self.call("POST", path, body, {"Content-Type": "application/json", **(headers or {})}, **query)

    def send(
        self,
        topic: str,
        body: bytes | Iterator[bytes],
        content_type: str | None = None,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        """Produces."""
        given = {**({"Content-Type": content_type} if content_type else {}), **(headers or {})}
        return self.call("POST", f"/topics/{topic}/messages", body, given, **query)

    def pages(self, path: str, member: str, limit: int = 1000) -> list[Any]:
        """Reads a list to its end."""
        found: list[Any] = []
        mark = ""
        while True:
            page = self.get(path, limit=limit, next=quote(mark, safe="")).json
            assert len(page[member]) <= limit
            found += page[member]
            mark = page["next"]
            if mark is None:
                return found

    def pulls_held(self) -> int:
        """Returns how many pulls the broker holds, by its own gauge."""
        page = self.get("//metrics").body.decode()
        line = next(line for line in page.splitlines() if 'processor="pull_hold"' in line)
        return int(float(line.rpartition(" ")[2]))

    def holds_nothing(self) -> bool:
        """Says whether, by the broker's own gauges, no request is inside and no body is held."""
        samples = Samples(self.get("//metrics").body.decode())
        inside = samples.named("lakemq_processor_watermark")
        held = samples.named("lakemq_parsing_bytes")
        assert len(inside) == 4, "send, bulk_send, flush_wait, pull_hold"
        assert len(held) == 1
        return all(sample.value == 0 for sample in (*inside, *held))

    def settle(self) -> None:
        """Returns when everything that the broker took so far can be read.

        Sends that were answered 200 with sync flush can be read already. Others (async flush, one-way,
        answered 202, without an answer) are in the log before this change, which is answered when it can be
        read.
        """
        deadline = time.monotonic() + 30
        # 202: not flushed in time, on a slow disk; asked again until it is.
        while (status := self.put("/groups/settle", {}).status) == 202:
            assert time.monotonic() < deadline
        assert status in (200, 201)

    def messages(self, topic: str) -> list[dict[str, Any]]:
        """Reads everything a topic holds, queue by queue; nothing for a topic that does not exist."""
        self.settle()
        queues = self.get(f"/topics/{topic}/queues")
        if queues.status == 404:
            return []
        found: list[dict[str, Any]] = []
        for queue in queues.json:
            offset = queue["min_offset"]
            while True:
                page = self.get(
                    f"/topics/{topic}/queues/{queue['queue_id']}/messages", offset=offset, max=1000
                ).json
                found += page["messages"]
                if page["next_offset"] >= page["max_offset"] or page["status"] != "FOUND":
                    break
                offset = page["next_offset"]
        return found


def raw_exchange(port: int, data: bytes, timeout_s: float = 30.0) -> bytes:
    """Sends bytes as they are and returns everything that comes back until the broker closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
        sock.sendall(data)
        received = b""
        while piece := sock.recv(65536):
            received += piece
        return received
