"""The time one attempt may take in all: connecting, sending, waiting and reading together.

Owns the connections of the pool.

Invariants: a peer that answers a byte at a time, or takes the body a byte at a time, gets no more time than
one that says nothing; a socket's own time-out would begin anew with each read. What the clock does not
reach is the resolver's look-up of a host name.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, connection_from_url
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from lakemq.client.endpoint import name_of_ca_file
from lakemq.tls.trust import in_words, trusting_context

_CONNECT_S = 3.0  # transport.py always gives a time-out
_LEAST_S = 0.001


class Deadline:
    """A moment until which something may last.

    Args:
        seconds: From now on.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Returns the seconds left; 0 or less when it is over."""
        return self._end - time.monotonic()


@contextmanager
def held(lock: threading.Lock, deadline: Deadline | None, *, wait: bool) -> Iterator[bool]:
    """Holds a lock, if it is free or, with ``wait``, becomes free before the deadline; says whether."""
    seconds = -1.0 if deadline is None else max(0.0, deadline.left())
    taken = lock.acquire(timeout=seconds) if wait else lock.acquire(blocking=False)
    try:
        yield taken
    finally:
        if taken:
            lock.release()


class _Current(threading.local):
    """Which deadline holds for the sockets this thread uses."""

    deadline: Deadline | None = None


_current = _Current()


@contextmanager
def until(deadline: Deadline) -> Iterator[None]:
    """Applies a deadline to what this thread reads and sends on the pool's connections."""
    _current.deadline = deadline
    try:
        yield
    finally:
        _current.deadline = None


def pool_of(endpoint: str, size: int, ca_file: str | None = None) -> HTTPConnectionPool:
    """Builds the pool of an endpoint; a thread beyond its size waits for a connection.

    Args:
        endpoint: ``http://host:port`` or ``https://host:port``.
        size: How many connections are kept.
        ca_file: Whose certificates are believed; None: the system's.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL; the file is unusable.
    """
    if not endpoint.lower().startswith("https:"):
        pool = connection_from_url(endpoint, maxsize=size, block=True, retries=False)
        pool.ConnectionCls = _Connecting
        return pool
    context = trusting_context(ca_file or "", name_of_ca_file(ca_file))
    context.sslsocket_class = _TimedTlsSocket
    secure = connection_from_url(endpoint, maxsize=size, block=True, retries=False, ssl_context=context)
    assert isinstance(secure, HTTPSConnectionPool)
    secure.ConnectionCls = _TlsConnecting
    return secure


class _Timed:
    """Gives each call on a socket what is left of the deadline, not a time-out of its own."""

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self._allow_what_is_left()
        received: int = super().recv_into(*args, **kwargs)  # type: ignore[misc]  # a socket's
        return received

    def sendall(self, *args: Any, **kwargs: Any) -> None:
        # A socket's time-out holds for the whole of a sendall.
        self._allow_what_is_left()
        super().sendall(*args, **kwargs)  # type: ignore[misc]  # a socket's

    def _allow_what_is_left(self) -> None:
        if _current.deadline is None:
            return
        left = _current.deadline.left()
        if left <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left)  # type: ignore[attr-defined]  # a socket's


class _TimedSocket(_Timed, socket.socket):
    """A TCP socket under the deadline."""


class _TimedTlsSocket(_Timed, ssl.SSLSocket):
    """A TLS socket under the deadline."""


class _Connecting(HTTPConnection):
    """Connects within one time-out, however many addresses the host has."""

    def _new_conn(self) -> socket.socket:
        """Called by urllib3, whose own version gives each address the whole time-out.

        An address that does not answer takes an equal part of what is left, so that the others have one too.
        """
        deadline = Deadline(self.timeout if isinstance(self.timeout, int | float) else _CONNECT_S)
        host = self._dns_host.strip("[]")
        try:
            places = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            reason = error if isinstance(error, socket.gaierror) else socket.gaierror(str(error))
            raise NameResolutionError(self.host, self, reason) from error
        failed: OSError | None = None
        for index, (family, kind, protocol, _, place) in enumerate(places):
            left = deadline.left()
            if left <= 0:
                failed = failed or TimeoutError("timed out")
                break
            opened: socket.socket | None = None
            try:
                opened = _TimedSocket(family, kind, protocol)
                for option in self.socket_options or ():
                    opened.setsockopt(*option)
                opened.settimeout(left / (len(places) - index))
                opened.connect(place)
            except OSError as error:
                failed = error
                if opened is not None:
                    opened.close()
            else:
                opened.settimeout(max(deadline.left(), _LEAST_S))
                return opened
        if isinstance(failed, TimeoutError):
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out.") from failed
        why = failed or "the host has no address"
        raise NewConnectionError(self, f"Failed to establish a new connection: {why}") from failed


class _TlsConnecting(_Connecting, HTTPSConnection):
    """The same, and the TLS handshake: until it is done no byte of a request has left."""

    def connect(self) -> None:
        """Called by urllib3, whose own version tells a handshake that failed from no later failure."""
        try:
            super().connect()
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"The TLS handshake with {self.host} timed out.") from error
        except (ssl.SSLError, ConnectionError) as error:
            raise NewConnectionError(self, in_words(error)) from error
