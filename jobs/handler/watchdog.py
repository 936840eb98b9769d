"""Ends a worker whose handler does not return.

Owns how long each call under way has taken, and the end of the process when one takes too long: nothing else
ends a call that hangs in C.

Invariants: a call that returns in time is never touched; the driver sees a worker that died and runs the
batch again with the handler in a process of its own, where the call is found and given up by itself.

Threads: one daemon per watch, for as long as calls are made; and one of faulthandler's, which needs no
interpreter and ends the process when a call holds it, so that the daemon cannot run.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Self

EXIT_STATUS = 70
"""Of a worker that was ended; sysexits.h calls it EX_SOFTWARE."""
_LOOKS = 20
_LONGEST_PAUSE_S = 1.0
_HELD_S = 1.0


class _Backstop:
    """Ends the process when a call holds the interpreter, so that no watch can look.

    There is one timer in a process, and watches that come and go beside each other: it is the longest one's.
    """

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._seconds: dict[Watchdog, float] = {}

    def hold(self, watch: Watchdog, seconds: float) -> None:
        """Has the process end then, unless this is said again before."""
        with self._one:
            self._seconds[watch] = seconds
            self._begin()

    def leave(self, watch: Watchdog) -> None:
        """Forgets a watch that is over."""
        with self._one:
            self._seconds.pop(watch, None)
            self._begin()

    def _begin(self) -> None:
        if self._seconds:
            faulthandler.dump_traceback_later(max(self._seconds.values()), exit=True)
        else:
            faulthandler.cancel_dump_traceback_later()


_backstop = _Backstop()


class Watchdog:
    """Watches calls.

    Args:
        timeout_s: How long a call may take.
        grace_s: How much later it is late: a coroutine is cancelled first.
        follows: What is said of a late one.
        on_late: Called on the watch's thread when one takes longer; by default it ends this process.
        on_look: Called on it at each look, with since when which call is under way, and the time.
        last_words: Called on it before it ends this process; not where a call holds the interpreter.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        grace_s: float = 0.0,
        follows: str = "its worker ends, its task runs again",
        on_late: Callable[[float], None] | None = None,
        on_look: Callable[[Mapping[int, float], float], None] | None = None,
        last_words: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_s = timeout_s
        self._limit_s = timeout_s + grace_s
        self._on_late = on_late or partial(end_process, follows=follows)
        self._on_look = on_look
        self._last_words = last_words
        self._ends_process = on_late is None
        self._clock = clock
        self._under_way: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="handler-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        _backstop.leave(self)

    def begin(self, call: int, since: float | None = None) -> None:
        """Notes that a call begins, or has been under way since a time of the clock."""
        self._under_way[call] = self._clock() if since is None else since

    def end(self, call: int) -> None:
        """Notes that it has returned."""
        del self._under_way[call]

    def _watch(self) -> None:
        pause = min(_LONGEST_PAUSE_S, self._limit_s / _LOOKS)
        while True:
            if self._ends_process:
                _backstop.hold(self, self._limit_s + 2 * pause + _HELD_S)
            if self._over.wait(pause):
                return
            # One step of the interpreter, so that no call comes or goes in the middle of it.
            under_way = self._under_way.copy()
            now = self._clock()
            if now - min(under_way.values(), default=now) > self._limit_s:
                if self._ends_process:
                    self._last_words()
                self._on_late(self._timeout_s)
                return
            if self._on_look is not None:
                self._on_look(under_way, now)


def end_process(timeout_s: float, *, follows: str) -> None:
    """Ends this process, and says so.

    Args:
        timeout_s: How long a call may take.
        follows: What is said of the one that took longer.
    """
    print(
        f"lakemq: the handler did not return within {timeout_s:g} s: {follows}", file=sys.stderr, flush=True
    )
    os._exit(EXIT_STATUS)
