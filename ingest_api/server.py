"""Runs a broker: socket, event loop, uvicorn, signals.

Owns the life of the process from the bound socket to the exit status.

Invariants: the port is taken before the store is opened, so a second broker on one port fails before it
touches a store; the ready line is printed when a request would be answered; SIGTERM and SIGINT end in a
closed store.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import uvicorn
import uvloop

from ingest_api.advertised import advertised_url
from ingest_api.broker.broker import Broker
from ingest_api.http.app import create_app
from ingest_api.http.connection.watch import REFUSED_AT_ONCE
from ingest_api.http.front_door import FrontDoor
from ingest_api.http.uvicorn_protocol import BrokerProtocol
from ingest_api.logs import set_up_logging
from ingest_api.settings import Settings
from store_native.errors import InvalidRequest

log = logging.getLogger("lakemq.broker")

BACKLOG = 4096
_INTERRUPTED = 130
OWN_FILES = 256
"""Of the files the process may have open, so many are not for connections; the refused ones that are still
receiving the reason are among them."""


def serve(settings: Settings, announce: Callable[[str], None]) -> int:
    """Serves until a signal says stop.

    Args:
        settings: Checked settings.
        announce: Gets the one line that says where the broker answers, once it does.

    Returns:
        The exit status: 0 after a graceful stop, 130 when Ctrl-C came before the broker was ready.

    Raises:
        LakeMQError: The port is taken (ARGUMENT_ILLEGAL) or the store does not open.
    """
    set_up_logging(settings.log)
    _raise_descriptor_limit()
    settings = _within_open_files(settings)
    with _Interrupts() as interrupts:
        listener = _bind(settings)
        with listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, listener, announce, interrupts))


async def _serve(
    settings: Settings, listener: socket.socket, announce: Callable[[str], None], interrupts: _Interrupts
) -> int:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    advertised = advertised_url(settings.http.advertised_address, host, port)
    broker = Broker(settings.broker, advertised, (_host_in_ids(host), port))
    door = FrontDoor(broker, settings)
    recovery = broker.store.recovery
    log.info("store open", extra={"fields": {"path": settings.store.path, **dict(recovery)}})
    server = _Server(
        uvicorn.Config(
            create_app(door),
            loop="none",  # the runner's
            http=BrokerProtocol,
            ws="none",
            interface="asgi3",  # BrokerApp.__call__ is no coroutine function, so uvicorn cannot tell
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=settings.http.keep_alive_s,
            timeout_graceful_shutdown=settings.http.stop_timeout_s,
        ),
        door,
        lambda: announce(f"lakemq broker ready on {address} store={settings.store.path}"),
        interrupts,
    )
    try:
        await broker.start(host)
        if not interrupts.came:
            await server.serve(sockets=[listener])
    finally:
        # What ends without the lifespan's shutdown closes the store all the same.
        if not broker.stopped:
            await broker.stop()
    return 0 if server.announced else _INTERRUPTED


class _Interrupts:
    """Notes Ctrl-C where uvicorn does not: before it runs, and behind its end.

    An exception or a cancelled task in the middle of a start would leave a half-open store, and a stack.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def __enter__(self) -> _Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: object) -> None:
        self.came = True


class _Server(uvicorn.Server):
    """uvicorn's server with our beginning and end."""

    def __init__(
        self, config: uvicorn.Config, door: FrontDoor, ready: Callable[[], None], interrupts: _Interrupts
    ) -> None:
        super().__init__(config)
        self.announced = False
        self._door = door
        self._ready = ready
        self._interrupts = interrupts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn; announces once the socket accepts."""
        await super().startup(sockets)
        self.should_exit = self.should_exit or self._interrupts.came
        if not self.should_exit:
            self.announced = True
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn after a signal; held pulls would keep it waiting until their time is up."""
        log.info("stopping")
        self._door.begin_stop()
        await super().shutdown(sockets)
        if self.force_exit:
            # A second Ctrl-C: uvicorn waits neither for requests nor for the lifespan that closes the store.
            tasks = list(self.server_state.tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles SIGINT and SIGTERM while uvicorn serves; called by uvicorn.

        Its own version raises the signal again at the end, and then a graceful stop would exit with 143
        instead of 0.
        """
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _within_open_files(settings: Settings) -> Settings:
    """Lowers the number of connections to what may be open, so that the store keeps its share."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    fits = max(limit - OWN_FILES, limit // 2 - REFUSED_AT_ONCE, 1)
    if limit == resource.RLIM_INFINITY or settings.http.max_connections <= fits:
        return settings
    log.warning("fewer connections, for want of open files", extra={"fields": {"max": fits, "limit": limit}})
    return settings.model_copy(update={"http": replace(settings.http, max_connections=fits)})


def _raise_descriptor_limit() -> None:
    """Raises the soft limit of open files to the hard one: connections and log files need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays", extra={"fields": {"limit": soft, "reason": str(error)}})
    else:
        log.info("limit of open files", extra={"fields": {"before": soft, "now": hard}})


def _bind(settings: Settings) -> socket.socket:
    host, port = settings.http.host, settings.http.port
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as on_failure:
            listener = on_failure.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            on_failure.pop_all()
    except (OSError, UnicodeError) as error:  # UnicodeError: no host name at all, such as a..b
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            reason += "; --port gives this broker another, 0 a free one"
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"cannot listen on {host} port {port}: {reason}") from error
    return listener


def _host_in_ids(host: str) -> str:
    """The address message ids carry; a wildcard is none, and ids need some address."""
    return "127.0.0.1" if ip_address(host).is_unspecified else host
