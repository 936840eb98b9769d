"""Who wants to know that the log moved.

Owns the drivers' waiting: each for what its link waits for, and for its link's deadline.

Invariants: no move is lost: what comes while a driver does something else is kept until it waits. A driver
whose link has nothing to do is not woken, and its one timer is set anew only when it has run out: most moves
of the log, and most of what arrives, leave a link nothing to say. What a link has to say is said at once
where that is all there is to do: waking a task takes longer than that.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Wakeup:
    """One driver's waiting.

    Args:
        is_due: Says at each move whether the driver has something to do before its deadline.

    Attributes:
        at_once: Does it in the driver's place, while that waits; says whether nothing is left to do. What it
            raises is the driver's to come to as well.
    """

    def __init__(self, is_due: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._deadline: Callable[[], float] = lambda: float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self.is_due = is_due
        self.at_once: Callable[[], bool] = lambda: False

    def set(self) -> None:
        """Wakes the driver, or has it not wait the next time."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def look(self) -> None:
        """Something moved: wakes the driver if that leaves it something to do."""
        if self._is_set:
            return
        if self._waiter is None or (self.is_due() and not self._do_at_once()):
            self.set()
        else:
            self._arm()

    def _do_at_once(self) -> bool:
        try:
            return self.at_once()
        except Exception:  # noqa: BLE001 - the driver comes to the same, and ends its connection
            return False

    async def wait(self, deadline: Callable[[], float]) -> None:
        """Waits until there is something to do.

        Args:
            deadline: The time at which the driver has something to do at the latest; it may change.
        """
        if not self._is_set:
            self._deadline = deadline
            self._waiter = self._loop.create_future()
            try:
                self._arm()
                await self._waiter
            finally:
                self._waiter = None
        self._is_set = False

    def close(self) -> None:
        """Ends the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        at = self._deadline()
        if at == float("inf") or (self._timer is not None and self._timer_at <= at):
            return
        self.close()
        self._timer, self._timer_at = self._loop.call_at(at, self._ring), at

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is None:
            return  # it asks before it waits again
        if self._deadline() <= self._loop.time():
            self.set()
        else:
            self._arm()


class Wakeups:
    """Has all drivers look.

    Args:
        listen: Called when somebody begins to wait.
    """

    def __init__(self, listen: Callable[[], None]) -> None:
        self._listen = listen
        self._wakeups: set[Wakeup] = set()

    @property
    def wanted(self) -> bool:
        """Whether anybody listens at all."""
        return bool(self._wakeups)

    def add(self, is_due: Callable[[], bool]) -> Wakeup:
        """Returns a driver's waiting, which hears of each move until :meth:`discard`."""
        wakeup = Wakeup(is_due)
        self._wakeups.add(wakeup)
        self._listen()
        return wakeup

    def discard(self, wakeup: Wakeup) -> None:
        """Forgets it."""
        self._wakeups.discard(wakeup)
        wakeup.close()

    def wake(self) -> None:
        """The log moved."""
        for wakeup in self._wakeups:
            wakeup.look()

    def wake_all(self) -> None:
        """What the links go by has changed: every driver asks its link."""
        for wakeup in self._wakeups:
            wakeup.set()
