"""Runs a process with a front door: socket, event loop, uvicorn, signals.

Owns the life of the process from the bound socket to the exit status; server.py and name_server.py say what
is served.

Invariants: the port is taken before anything is opened, so a second process on one port fails before it
touches a store; the ready line is printed when a request would be answered; SIGTERM and SIGINT end in what
was opened being closed (SIGTERM while a store is being opened ends the process as it is).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import uvicorn
import uvloop

from ingest_api.http.connection.watch import REFUSED_AT_ONCE
from ingest_api.http.guarded_app import GuardedApp
from ingest_api.http.tls_protocol import over_tls
from ingest_api.http.uvicorn_protocol import BrokerProtocol
from ingest_api.logs import set_up_logging
from ingest_api.process_settings import HttpSettings, ProcessSettings
from lakemq.tls.files import serving_context, warn_of
from lakemq.tls.trust import Trust
from store_native.errors import InvalidRequest

log = logging.getLogger("lakemq.broker")

BACKLOG = 4096
_INTERRUPTED = 130
_LOOK_EVERY_S = 0.2
OWN_FILES = 256
"""Of the files the process may have open, so many are not for connections; the refused ones that are still
receiving the reason are among them."""


class Served(Protocol):
    """What a process serves."""

    @property
    def app(self) -> GuardedApp:
        """Its application; the lifespan's shutdown closes what it needs."""

    @property
    def ready_line(self) -> str:
        """What is said once a request would be answered."""

    async def start(self) -> None:
        """Begins what needs the event loop, before requests are taken."""

    def begin_stop(self) -> None:
        """Ends what waits for clients; called before requests in flight are waited for."""

    async def close(self) -> None:
        """Closes what the lifespan's shutdown did not."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the process listens.

    Attributes:
        host: The address.
        port: The port, taken.
        http: The settings, with no more connections than may be open.
        scheme: ``http``, or ``https`` where the port speaks TLS.
    """

    host: str
    port: int
    http: HttpSettings
    scheme: str

    @property
    def url(self) -> str:
        """``http://host:port``."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}:{self.port}"


def run(
    settings: ProcessSettings,
    build: Callable[[Place], Awaitable[Served]],
    announce: Callable[[str], None],
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Serves until a signal says stop.

    Args:
        settings: Where to listen, the bounds, the certificate, how the process logs.
        build: Makes what is served, on the event loop, once the port is taken.
        announce: Gets the ready line.
        prepare: Comes before that and may take long; a signal cancels it.

    Returns:
        The exit status: 0 after a graceful stop, also of what was being prepared; 130 when Ctrl-C came before
        it was ready.

    Raises:
        LakeMQError: The port is taken or the certificate unusable (ARGUMENT_ILLEGAL), or what ``build``
            raises.
    """
    set_up_logging(settings.log)
    tls = serving_context(settings.tls)
    warn_of(settings.tls)
    if settings.tls.ca:
        Trust(settings.tls.ca).context()  # what is wrong with it is said now
    _raise_descriptor_limit()
    http = within_open_files(settings.http)
    with _Interrupts() as interrupts:
        listener = _bind(http)
        with listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if prepare is not None and not runner.run(_prepared(prepare, interrupts)):
                return _INTERRUPTED if interrupts.number == signal.SIGINT else 0
            return runner.run(_serve(http, tls, listener, build, announce, interrupts))


async def _prepared(prepare: Callable[[], Awaitable[None]], interrupts: _Interrupts) -> bool:
    """Whether it got to its end before a signal came."""
    with interrupts.also(signal.SIGTERM):
        preparing = asyncio.ensure_future(prepare())
        while not preparing.done():
            await asyncio.wait((preparing,), timeout=_LOOK_EVERY_S)
            if interrupts.came:
                preparing.cancel()
    if preparing.cancelled():
        return False
    await preparing
    return not interrupts.came


async def _serve(
    http: HttpSettings,
    tls: ssl.SSLContext | None,
    listener: socket.socket,
    build: Callable[[Place], Awaitable[Served]],
    announce: Callable[[str], None],
    interrupts: _Interrupts,
) -> int:
    host, port = listener.getsockname()[:2]
    building = asyncio.ensure_future(build(Place(host, port, http, "http" if tls is None else "https")))
    while not building.done():
        await asyncio.wait((building,), timeout=_LOOK_EVERY_S)
        if interrupts.came:
            building.cancel()
    if building.cancelled():
        return _INTERRUPTED
    served = await building
    server = _Server(
        uvicorn.Config(
            served.app,
            loop="none",  # the runner's
            http=BrokerProtocol if tls is None else over_tls(tls),  # type: ignore[arg-type]  # it makes one
            ws="none",
            interface="asgi3",  # the app's __call__ is no coroutine function, so uvicorn cannot tell
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=http.keep_alive_s,
            timeout_graceful_shutdown=http.stop_timeout_s,
        ),
        served.begin_stop,
        lambda: announce(served.ready_line),
        interrupts,
    )
    try:
        await served.start()
        if not interrupts.came:
            await server.serve(sockets=[listener])
    finally:
        # What ends without the lifespan's shutdown is closed all the same.
        await served.close()
    return 0 if server.announced else _INTERRUPTED


class _Interrupts:
    """Notes Ctrl-C where uvicorn does not: before it runs, and behind its end.

    An exception or a cancelled task in the middle of a start would leave a half-open store, and a stack.
    """

    def __init__(self) -> None:
        self.number = 0
        self._before: Any = None

    @property
    def came(self) -> bool:
        """Whether one came."""
        return self.number != 0

    def __enter__(self) -> _Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextlib.contextmanager
    def also(self, number: signal.Signals) -> Iterator[None]:
        """Notes this signal, too."""
        before = signal.signal(number, self._note)
        try:
            yield
        finally:
            signal.signal(number, before)

    def _note(self, number: int, frame: object) -> None:
        self.number = number


class _Server(uvicorn.Server):
    """uvicorn's server with our beginning and end."""

    def __init__(
        self,
        config: uvicorn.Config,
        begin_stop: Callable[[], None],
        ready: Callable[[], None],
        interrupts: _Interrupts,
    ) -> None:
        super().__init__(config)
        self.announced = False
        self._begin_stop = begin_stop
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
        self._begin_stop()
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
        """Handles SIGINT, SIGTERM and SIGHUP while uvicorn serves; called by uvicorn.

        Its own version raises the signal again at the end, and then a graceful stop would exit with 143
        instead of 0; and it leaves SIGHUP, a terminal's end, to end the process without a stop. Where that is
        ignored, as under nohup, it stays so.
        """
        handled = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handled.append(signal.SIGHUP)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def within_open_files(http: HttpSettings) -> HttpSettings:
    """Lowers the number of connections to what may be open, so that the store keeps its share."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    fits = max(limit - OWN_FILES, limit // 2 - REFUSED_AT_ONCE, 1)
    if limit == resource.RLIM_INFINITY or http.max_connections <= fits:
        return http
    log.warning("fewer connections, for want of open files", extra={"fields": {"max": fits, "limit": limit}})
    return replace(http, max_connections=fits)


def _raise_descriptor_limit() -> None:
    """Raises the soft limit of open files to the hard one: connections and log files need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays", extra={"fields": {"limit": soft, "reason": str(error)}})
    else:
        log.info("limit of open files", extra={"fields": {"before": soft, "now": hard}})


def _bind(http: HttpSettings) -> socket.socket:
    host, port = http.host, http.port
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
            reason += "; --port gives it another, 0 a free one"
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"cannot listen on {host} port {port}: {reason}") from error
    return listener
