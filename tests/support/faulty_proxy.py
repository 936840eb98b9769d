"""A proxy between a client and a broker that loses, delays or spoils answers, one request at a time.

Owns its listener and threads.

Invariants: the broker has answered before an answer is lost, so what the request stores is stored by then.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

Fault = Literal["pass", "lose", "hang", "dribble", "busy", "bad gateway", "cut", "other shape"]
_DRIBBLE_S = 0.05


class FaultyProxy:
    """Forwards to a broker.

    Args:
        endpoint: The broker.
        faults: What happens to each request in turn; when used up, the last one stays.

    Attributes:
        keys: The Idempotency-Key of each request that came, in order.
        stored: How many requests the broker answered with 2xx.
    """

    def __init__(self, endpoint: str, *faults: Fault) -> None:
        self._broker = urlsplit(endpoint)
        self._faults = deque[Fault](faults)
        self._last: Fault = "pass"
        self.keys: list[str | None] = []
        self.stored = 0
        self._over = threading.Event()
        self._connections: list[socket.socket] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False  # closing the server waits for them
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        for connection in self._connections:
            with contextlib.suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def _handler(proxy: FaultyProxy) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                proxy._connections.append(self.connection)

            def do_POST(self) -> None:
                proxy._answer(self)

            do_GET = do_PUT = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.keys.append(handler.headers.get("Idempotency-Key"))
        if self._faults:
            self._last = self._faults.popleft()
        fault = self._last
        if fault == "busy":
            _write(handler, 503, b'{"code":"SYSTEM_BUSY","detail":"busy","retry_after_ms":1500}')
            return
        status, answer = self._forward(handler, body)
        if fault == "lose":
            handler.close_connection = True
        elif fault == "hang":
            self._over.wait()
            handler.close_connection = True
        elif fault == "dribble":
            handler.close_connection = True
            self._dribble(handler)
        elif fault == "bad gateway":
            _write(handler, 502, b"<html>Bad gateway</html>")
        elif fault == "cut":
            # Without a length the end of the connection is the end of the answer, wherever it comes.
            handler.close_connection = True
            handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + answer[:20])
        elif fault == "other shape":
            _write(handler, 200, b"{}")
        else:
            _write(handler, status, answer)

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        assert self._broker.hostname is not None
        broker = http.client.HTTPConnection(self._broker.hostname, self._broker.port, timeout=60)
        try:
            kept = {n: v for n, v in handler.headers.items() if n.lower() not in ("host", "content-length")}
            broker.request(handler.command, handler.path, body, kept)
            answer = broker.getresponse()
            content = answer.read()
        finally:
            broker.close()
        self.stored += 200 <= answer.status < 300
        return answer.status, content

    def _dribble(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers a byte at a time, for as long as the proxy lives."""
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not self._over.wait(_DRIBBLE_S):
                handler.wfile.write(b" ")
        except OSError:
            return  # the client has had enough


def _write(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
