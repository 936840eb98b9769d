"""Events on their way to whoever keeps lineage.

Owns the thread that sends them, one after the other.

Invariants: whoever has an event sent does not wait, and no failure reaches him; MOST_WAITING events wait at
most, what comes then is dropped. `close` waits for the last ones for LAST_S at most. What is logged of a
failure has no address and no header of the receiver's: they may hold secrets.

Threads: one daemon, which is the only one that touches OpenLineage's client.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from jobs.lineage.event import RunState, as_event

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

_log = logging.getLogger(__name__)

_NAME = "lineage-sender"
_TRIES = logging.getLogger("urllib3.connectionpool")

_OWN = "OPENLINEAGE__"
_RAISE = ("composite", "console", "file", "http", "noop")
"""Transports whose failures are raised; others send in a thread of their own."""

MOST_WAITING = 100
LAST_S = 2.0
"""What the end of a job waits for its last events to be taken."""


class LineageClient(Protocol):
    """What of OpenLineage's client is used."""

    def emit(self, event: RunEvent) -> object:
        """Sends an event, or hands it to a thread of its own; raises what goes wrong at once."""

    def close(self, timeout: float) -> bool:
        """Waits so many seconds at most for its own threads; whether they sent all."""


class EventSender:
    """The thread that sends events.

    Args:
        open_client: makes the client, in the thread: to import it takes a third of a second.

    Attributes:
        last_try: why the last try failed that was repeated.
    """

    def __init__(self, open_client: Callable[[], LineageClient]) -> None:
        self._open_client = open_client
        self._client: LineageClient | None = None
        self._waiting: queue.Queue[RunState | None] = queue.Queue(MOST_WAITING)
        self._warned = False
        self.last_try = ""
        self._thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
        _TRIES.addFilter(self._is_anothers)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs still."""
        return self._thread.is_alive()

    def send(self, run: RunState) -> None:
        """Has an event sent, and does not wait."""
        self._put(run)

    def close(self, timeout_s: float = LAST_S) -> None:
        """Ends the thread when all is sent, and waits so long at most for it."""
        self._put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn(self._not_taken(timeout_s))

    def _put(self, run: RunState | None) -> None:
        """The newest says most: the oldest makes room."""
        while True:
            try:
                self._waiting.put_nowait(run)
                return
            except queue.Full:
                self._warn(f"{MOST_WAITING} events wait already")
                with suppress(queue.Empty):
                    self._waiting.get_nowait()

    def _run(self) -> None:
        while (run := self._waiting.get()) is not None:
            try:
                if self._client is None:
                    self._client = self._open_client()
                self._client.emit(as_event(run))
                self._warned = False
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the client and its transports are foreign code
                self._warn(_reason(error))
        if self._client is not None:
            self._close(self._client)
        _TRIES.removeFilter(self._is_anothers)

    def _close(self, client: LineageClient) -> None:
        try:
            taken = client.close(LAST_S)
        except Exception as error:  # noqa: BLE001 - foreign code
            self._warn(_reason(error))
        else:
            if not taken:
                self._warn(self._not_taken(LAST_S))

    def _not_taken(self, timeout_s: float) -> str:
        return f"the last events were not taken within {timeout_s:g} s{self.last_try}"

    def _is_anothers(self, record: logging.LogRecord) -> bool:
        """Keeps what urllib3 says of each try out of the log, and knows of the last one why it failed."""
        if record.thread != self._thread.ident:
            return True
        said = record.args if isinstance(record.args, tuple) else ()
        failures = [_reason(each) for each in said if isinstance(each, Exception)]
        self.last_try = f" ({failures[-1]})" if failures else self.last_try
        return False

    def _warn(self, why: str) -> None:
        """Once until an event is taken again."""
        if not self._warned:
            _log.warning("lineage is asked for, and an event is lost: %s", why)
        self._warned = True


class NoTransport(Exception):
    """Nothing says where events go."""


def open_client() -> LineageClient:
    """OpenLineage's own client, as its variables and files say.

    Raises:
        NoTransport: they do not say where events go.
    """
    from openlineage.client import OpenLineageClient

    own_log = logging.getLogger("openlineage.client")
    was = own_log.level
    if was == logging.NOTSET:
        # It logs each event's failure, with its stack and what it was given.
        own_log.setLevel(logging.CRITICAL)
    before = set(os.environ)
    try:
        client = OpenLineageClient()
    finally:
        for name in set(os.environ) - before:
            if name.startswith(_OWN):
                del os.environ[name]  # a later client, and every process, would take it for the user's
    if client.transport.kind not in _RAISE and own_log.level == logging.CRITICAL:
        own_log.setLevel(was)  # nobody else says what becomes of an event
    if client.transport.kind == "console":
        if not (client.config.transport or {}).get("type"):
            raise NoTransport("what asks for it names no transport, or cannot be read")
        logging.getLogger("openlineage.client.transport.console").setLevel(logging.INFO)
    return client


def _reason(error: BaseException) -> str:
    """What went wrong: its kind, what the receiver answered or the system said."""
    if isinstance(error, ImportError):
        missing = error.name or ""
        needed = "'lakemq[openlineage]'" if missing.partition(".")[0] == "openlineage" else missing
        return f"it needs: pip install {needed}"
    if isinstance(error, NoTransport):
        return str(error)
    said = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"{said}: {status}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return f"{said}: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return said
