"""A 2xx that no broker gives: one error of ours that names the endpoint, whatever was asked for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from lakemq.client import Client, InvalidRequest

PAGE = b"<html><body>Please log in</body></html>"
POSITION = {
    "X-LakeMQ-Status": "FOUND",
    "X-LakeMQ-Next-Offset": "6",
    "X-LakeMQ-Min-Offset": "0",
    "X-LakeMQ-Max-Offset": "6",
    "X-LakeMQ-Count": "6",
}
CALLS: dict[str, Callable[[Client], Any]] = {
    "pull": lambda client: client.pull("t", 0, 0),
    "pull_arrow": lambda client: client.pull_arrow("t", 0, 0),
    "queues": lambda client: client.queues("t"),
    "topics": lambda client: client.topics(),
    "topic": lambda client: client.topic("t"),
    "put_topic": lambda client: client.put_topic("t"),
    "put_group": lambda client: client.put_group("g"),
    "group_offsets": lambda client: client.group_offsets("g"),
    "reset_offsets": lambda client: client.reset_offsets("g", "t", to="earliest"),
    "acquire_lease": lambda client: client.acquire_lease("g", "me", 1000),
    "offset_by_time": lambda client: client.offset_by_time("t", 0, 0),
    "message": lambda client: client.message("id"),
    "query": lambda client: client.query("t", "key"),
    "route": lambda client: client.route("t"),
    "cluster": lambda client: client.cluster(),
}


@contextmanager
def answering(body: bytes, headers: dict[str, str]) -> Iterator[str]:
    """An endpoint that answers everything with the same 200."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def stream() -> bytes:
    """Two batches of three rows."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"queue_offset": [0, 1, 2], "body": [b"a", b"bb", b"ccc"]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
        writer.write(batch)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("body", [PAGE, b"", b"\xff\xfe\x00", b"[1]", b'"text"', b"[" * 100_000])
def test_answer_that_is_no_brokers_names_who_gave_it(call: str, body: bytes) -> None:
    with answering(body, {}) as endpoint, Client(endpoint, retries=0) as client:
        with pytest.raises(InvalidRequest, match="no LakeMQ broker") as malformed:
            CALLS[call](client)
        assert malformed.value.code == "MALFORMED_BODY"
        assert endpoint in str(malformed.value)


def test_whole_stream_is_read() -> None:
    with answering(stream(), POSITION) as endpoint, Client(endpoint) as client:
        assert client.pull_arrow("t", 0, 0).batch.num_rows == 6


def test_stream_cut_anywhere_is_not_taken_for_a_shorter_one() -> None:
    whole = stream()
    for length in range(0, len(whole) - 8, 4):  # the last 8 say only that nothing follows
        refused(whole[:length], POSITION)


def test_stream_without_its_position_or_spoiled_is_refused() -> None:
    whole = stream()
    refused(whole, {})
    refused(whole, {**POSITION, "X-LakeMQ-Next-Offset": "six"})
    refused(whole, {**POSITION, "X-LakeMQ-Damaged": "[[1]]"})
    chance = random.Random(7)
    for _ in range(200):
        spoiled = bytearray(whole)
        for _ in range(8):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        refused(bytes(spoiled), POSITION, at_least=False)


def refused(body: bytes, headers: dict[str, str], *, at_least: bool = True) -> None:
    """Asks without a socket: decoding is what is in question."""
    from lakemq.client.arrow import decode_pull
    from lakemq.client.transport import Answer

    refusal: InvalidRequest | None = None
    try:
        decode_pull(Answer(200, headers, body, "http://proxy:1"))
    except InvalidRequest as error:
        refusal = error
    if refusal is None:
        assert not at_least, f"{len(body)} bytes were taken for a whole answer"
        return
    assert (refusal.code, refusal.context["endpoint"]) == ("MALFORMED_BODY", "http://proxy:1")
