"""Events on their way to whoever keeps lineage.

Owns the thread that sends them, one after the other.

Invariants: whoever has an event sent does not wait, and no failure reaches him; MOST_WAITING events wait at
most, what comes then is dropped. `close` waits for the last ones for LAST_S at most.

Threads: one daemon, which is the only one that touches OpenLineage's client. What urllib3 says there of each
try is not logged: what comes of it is.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from jobs.lineage.event import RunState, as_event

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

Emit: TypeAlias = "Callable[[RunEvent], object]"

_log = logging.getLogger(__name__)

_NAME = "lineage-sender"
_TRIES = logging.getLogger("urllib3.connectionpool")

MOST_WAITING = 100
LAST_S = 2.0
"""What the end of a job waits for its last events to be taken."""


class EventSender:
    """The thread that sends events.

    Args:
        open_client: makes what sends an event and raises what goes wrong, in the thread: to import it takes a
            third of a second.
    """

    def __init__(self, open_client: Callable[[], Emit]) -> None:
        self._open_client = open_client
        self._emit: Emit | None = None
        self._waiting: queue.Queue[RunState | None] = queue.Queue(MOST_WAITING)
        self._warned = False
        _TRIES.addFilter(_is_not_the_senders)
        self._thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
        self._thread.start()

    def send(self, run: RunState) -> None:
        """Has an event sent, and does not wait."""
        try:
            self._waiting.put_nowait(run)
        except queue.Full:
            self._warn(f"{MOST_WAITING} events wait already")

    def close(self, timeout_s: float = LAST_S) -> None:
        """Ends the thread when all is sent, and waits so long at most for it."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn(f"the last events were not taken within {timeout_s:g} s")

    def _run(self) -> None:
        while (run := self._waiting.get()) is not None:
            try:
                if self._emit is None:
                    self._emit = self._open_client()
                self._emit(as_event(run))
                self._warned = False
            except ImportError as error:
                self._warn(f"it needs: pip install 'lakemq[openlineage]' ({error})")
            except Exception as error:  # noqa: BLE001 - the client and its transports are foreign code
                self._warn(f"{type(error).__name__}: {error}")

    def _warn(self, why: str) -> None:
        """Once until an event is taken again."""
        if not self._warned:
            _log.warning("lineage is asked for, and an event is lost: %s", why)
        self._warned = True


def _is_not_the_senders(record: logging.LogRecord) -> bool:
    return record.threadName != _NAME


def open_client() -> Emit:
    """What OpenLineage's own client sends with, as its variables and files say."""
    from openlineage.client import OpenLineageClient

    return OpenLineageClient().emit
