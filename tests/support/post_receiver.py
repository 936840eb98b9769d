"""A receiver of what others POST, on loopback.

Owns the server and its thread; what came is whoever's it was made for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def post_receiver(
    take: Callable[[bytes], None], asked: threading.Event, answers: threading.Event, status: int = 200
) -> Iterator[str]:
    """Runs a receiver.

    Args:
        take: called with each body.
        asked: set when a request has come.
        answers: while it is not set, requests are neither taken nor answered; it is set at the end.
        status: what is answered.

    Yields:
        Its endpoint.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.set()
            answers.wait()
            take(body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Says nothing of a client that has hung up."""

    with Server(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            answers.set()
            server.shutdown()
            serving.join()
