"""A proxy for any TCP connection that holds bytes back, in either direction, until a test lets them go.

Owns its listener, its connections and their threads.

Invariants: bytes that were held go on in their order; what is held is not lost, unless the proxy cuts.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Literal, Self

Direction = Literal["to server", "to client"]
_CHUNK = 64 << 10


class TcpProxy:
    """Forwards to a loopback port.

    Args:
        port: The server's.

    Attributes:
        port: Where it listens itself.
        held: The directions in which nothing goes.
        connected: How many connections came.
        carried: Bytes that went on, by direction.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._go = threading.Condition()
        self._over = False
        self.connected = 0
        self.carried: dict[Direction, int] = {"to server": 0, "to client": 0}
        self.held: set[Direction] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        with self._go:
            self._over = True
            self._go.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def hold(self, *directions: Direction) -> None:
        """Lets nothing go in these directions, and everything in the others."""
        with self._go:
            self.held = set(directions)
            self._go.notify_all()

    def cut(self) -> None:
        """Ends all connections; new ones are taken."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _start(self, job: object, *arguments: object) -> None:
        thread = threading.Thread(target=job, args=arguments)  # type: ignore[arg-type]  # a bound method
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the proxy is over
            self._open.append(client)
            self.connected += 1
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port), 10)
            except OSError:
                client.shutdown(socket.SHUT_RDWR)
                continue
            self._open.append(server)
            server.settimeout(None)
            self._start(self._forward, client, server, "to server")
            self._start(self._forward, server, client, "to client")

    def _forward(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        try:
            while data := source.recv(_CHUNK):
                with self._go:
                    self._go.wait_for(lambda: self._over or direction not in self.held)
                    self.carried[direction] += len(data)
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
