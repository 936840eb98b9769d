"""What a broker looks at every few seconds: its disk, its store's dispatch, events and topics.

Owns that task, and the lines that the store's events become in the broker's log.

Invariants: each event of the store is logged once; that the store became read-only for good, at once.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ha_replicator.nameserver import HeartbeatScan
from ingest_api.broker.admission import Admission
from store_native import Store

EVERY_S = 2.0

log = logging.getLogger("lakemq.broker")


class Housekeeping:
    """Looks after a store and the tables of an embedded name server.

    Args:
        store: Is looked at.
        admission: Gets to know what sends are refused for.
        topics_changed: Called after topics came, changed or went.
        scan: Of the embedded name server.
        every_s: Between two rounds.
    """

    def __init__(
        self,
        store: Store,
        admission: Admission,
        topics_changed: Callable[[], None],
        scan: HeartbeatScan,
        every_s: float = EVERY_S,
    ) -> None:
        self._store = store
        self._admission = admission
        self._topics_changed = topics_changed
        self._scan = scan
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._known_changes = store.topic_changes
        self._alarm = store.alarm_fd()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, with a first round at once."""
        self._loop.add_reader(self._alarm, self._on_alarm)
        self._task = self._loop.create_task(self._run())
        self._scan.start()

    async def stop(self) -> None:
        """Ends the rounds; what the store says later is logged by :meth:`log_events` only."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._scan.stop()
        self._loop.remove_reader(self._alarm)

    def log_events(self) -> None:
        """Writes what the store has to say to the broker's log."""
        for severity, text in self._store.take_events():
            log.log(logging.ERROR if severity == "error" else logging.WARNING, "store: %s", text)

    def _on_alarm(self) -> None:
        """The store became read-only for good: its operator reads so now, not at the next round."""
        self._loop.remove_reader(self._alarm)  # it rings once
        self.log_events()

    async def _run(self) -> None:
        while True:
            self._look_at_disk()
            self._look_at_dispatch()
            self.log_events()
            if self._known_changes != (changes := self._store.topic_changes):
                self._known_changes = changes  # sends make topics, too
                self._topics_changed()
            await asyncio.sleep(self._every_s)

    def _look_at_disk(self) -> None:
        admission = self._admission
        was_full = admission.disk_full
        admission.set_disk_used(self._store.stats().get("disk_used_ratio", 0.0))
        if was_full != admission.disk_full:
            log.warning(
                "disk full, sends are refused" if not was_full else "disk has space again",
                extra={"fields": {"disk_used_ratio": round(admission.disk_used_ratio, 4)}},
            )

    def _look_at_dispatch(self) -> None:
        before, now = self._admission.dispatch_failure, self._store.dispatch_failure
        self._admission.dispatch_failure = now
        if before is None and now is not None:
            log.error("dispatch fails, sends are refused", extra={"fields": {"reason": now}})
        elif before is not None and now is None:
            log.warning("dispatch works again")
