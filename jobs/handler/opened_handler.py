"""A handler in the process that calls it: made once, opened, closed at the end.

Owns the instance of a handler that is a class, and the event loop of one whose calls are coroutines.

Invariants: one with a loop is made, opened, called and closed on the loop's thread, any other is opened and
closed on the task's. `open` is called before the first call and once per process; `close` when the process is
asked to end, and at most once. A process that is killed closes nothing.

Processes: Spark's Python workers, and the processes handlers are isolated in.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import FrameType, SimpleNamespace
from typing import Any

from jobs.handler.handler_loop import CANCEL_S, HandlerLoop
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.handler.long_call import close_under_way
from jobs.handler.usual_time import UsualTime
from jobs.tracing import provider

_ENDS = (signal.SIGHUP, signal.SIGTERM)
"""What Spark's daemon sends its workers, and Spark its daemon, at the end."""
CLOSE_S = 5
"""What `close` may take; then the process ends without it."""


class OpenedHandler:
    """A handler ready to be called.

    Attributes:
        call: The function, or the instance of the class.
        vectorised: Whether it takes batches.
        thread_safe: Whether several threads may call it at a time.
        loop: Where coroutines run; None for a plain function.
        usual: How long its calls take in this process.
    """

    def __init__(self, loaded: LoadedHandler) -> None:
        self.vectorised = loaded.vectorised
        self.thread_safe = loaded.thread_safe
        self.loop = HandlerLoop() if loaded.is_async else None
        self.call: Callable[..., Any] = loaded.function
        self.usual = UsualTime()
        self._instance: Any = None
        if inspect.isclass(loaded.function):
            try:
                self._instance = self._made(loaded.function)
                self.call = self._instance
                self._finish(getattr(self._instance, "open", None))
            except BaseException:
                if self.loop is not None:
                    self.loop.close()
                raise

    @property
    def grace_s(self) -> float:
        """What a call that took too long gets to end by itself: a coroutine is cancelled first."""
        return 0.0 if self.loop is None else CANCEL_S

    @property
    def closes(self) -> bool:
        """Whether there is something to do at the end."""
        return hasattr(self._instance, "close")

    def close(self) -> None:
        """Closes what `open` opened; further calls do nothing."""
        instance, self._instance = self._instance, None
        try:
            if instance is not None:
                self._finish(getattr(instance, "close", None))
        finally:
            if self.loop is not None:
                self.loop.close()

    def _made(self, function: Callable[[], Any]) -> Any:
        """The instance, made where it is called: what it opens may be of one thread."""
        if self.loop is None:
            return function()

        async def make() -> Any:
            return function()

        return self.loop.run(make)

    def _finish(self, step: Callable[[], Any] | None) -> None:
        if step is None:
            return
        if self.loop is not None:
            self.loop.run(lambda: _finished(step))
        elif inspect.isawaitable(result := step()):
            asyncio.run(_finished(lambda: result))


async def _finished(step: Callable[[], Any]) -> None:
    result = step()
    if inspect.isawaitable(result):
        await result


@cache
def opened(target: HandlerTarget) -> OpenedHandler:
    """The handler of this process, opened at the first question."""
    handler = OpenedHandler(target.load())
    if handler.closes or provider.tracer() is not None:
        _close_at_end(handler)  # a signal's default ends also a process whose interpreter is held
    return handler


def _close_at_end(handler: OpenedHandler) -> None:
    """Closes the handler when Spark ends this worker: by a signal, or by closing its socket."""
    if threading.current_thread() is not threading.main_thread():
        return  # not Spark's worker but a test, or a program that calls the handler itself

    def leave(code: int) -> None:
        close_under_way()
        for each in _ENDS:  # the daemon sends more than one, and the next must not cut the close short
            signal.signal(each, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CLOSE_S)
        try:
            handler.close()
        finally:
            provider.flush()
            os._exit(code)

    def end(number: int, frame: FrameType | None) -> None:
        if number in _ENDS:
            leave(0)

    daemon: Any = sys.modules.get("pyspark.daemon") or sys.modules.get("__main__")
    if hasattr(daemon, "manager") and hasattr(daemon, "SIG_DFL"):
        # PySpark's daemon sets its signals back before each task: to this, in this worker.
        daemon.SIG_DFL = end
        # A worker whose socket Spark has closed leaves by itself, perhaps before a signal comes.
        daemon.os = SimpleNamespace(**(vars(daemon.os) | {"_exit": leave}))
        for number in _ENDS:
            signal.signal(number, end)
