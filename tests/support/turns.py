"""Threads that take turns: one runs at a time, until it waits, and time passes when the test says so.

Owns whose turn it is, and the time. What a test drives with it never waits for anything: when all that can
happen has happened, :meth:`Turns.settle` returns, and where something should happen still, and nobody is left
who could do it, the test fails at once. It takes the place of the module ``threading`` and of the clock.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar

_MOST_CALLS: Final = 20_000
"""So often threads may ask for time, locks and turns before they are done: far more than they need."""
_RUNS_AT_MOST_S: Final = 10.0
_STOPPED_AT_A_LOCK: Final = 0.25

Result = TypeVar("Result")


class Stuck(AssertionError):
    """What is waited for can no longer come."""


class _Over(BaseException):
    """Ends the threads of a test that is over."""


def _always() -> bool:
    return True


@dataclass(eq=False)
class _Thread:
    """One that takes turns; has what the producer uses of a ``threading.Thread``."""

    turns: Turns
    name: str
    target: Callable[[], object] | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ready: Callable[[], bool] = _always
    deadline: float | None = None
    ended: bool = False
    error: BaseException | None = None
    real: threading.Thread | None = None

    def start(self) -> None:
        self.real = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.turns.threads.append(self)
        self.real.start()

    def is_alive(self) -> bool:
        return self.real is not None and not self.ended

    def join(self, timeout: float | None = None) -> None:
        if timeout is None or timeout > 0:
            self.turns.block(lambda: self.ended, timeout)

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self.turns.is_over and self.target is not None:
                self.target()
        except _Over:
            pass
        except BaseException as error:  # noqa: BLE001 - the test is told
            self.error = error
        self.ended, self.target = True, None
        if not self.turns.is_over:
            self.turns.hand_on()


class _Condition:
    """A ``threading.Condition`` of threads that take turns."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._owner: _Thread | None = None
        self._depth = 0
        self._told: list[list[bool]] = []

    def __enter__(self) -> Self:
        self._turns.maybe_hand_on()
        self._acquire(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._release(1)

    def wait(self, timeout: float | None = None) -> bool:
        if self._owner is not self._turns.current:
            raise RuntimeError("cannot wait on un-acquired lock")
        told, depth = [False], self._depth
        self._told.append(told)
        self._release(depth)
        self._turns.block(lambda: told[0], timeout)
        self._acquire(depth)
        return told[0]

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = None if timeout is None else self._turns.now + timeout
        while not predicate():
            left = None if until is None else until - self._turns.now
            if left is not None and left <= 0:
                return False
            self.wait(left)
        return True

    def notify_all(self) -> None:
        if self._owner is not self._turns.current:
            raise RuntimeError("cannot notify on un-acquired lock")
        for told in self._told:
            told[0] = True
        self._told.clear()

    def _acquire(self, depth: int) -> None:
        if self._owner is not self._turns.current:
            if self._owner is not None:
                self._turns.block(lambda: self._owner is None)
            self._owner = self._turns.current
        self._depth += depth

    def _release(self, depth: int) -> None:
        if self._owner is not self._turns.current:
            raise RuntimeError("release unlocked lock")
        self._depth -= depth
        if self._depth == 0:
            self._owner = None


class Turns:
    """The threads of one test; its own thread is one of them.

    Args:
        seed: Threads are also stopped where they take a lock, now and then, as dice say. None: never.

    Attributes:
        now: Seconds.
        current: Whose turn it is.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.now = 1000.0
        self.is_over = False
        self.threads: list[_Thread] = []
        self._dice = None if seed is None else random.Random(seed)
        self._test = self.current = _Thread(self, "the test")
        self.threads.append(self._test)
        self._real = threading.current_thread()
        self._settling = False
        self._calls = 0

    # what takes the place of ``threading`` and of the clock

    def Condition(self) -> Any:
        return _Condition(self)

    def Thread(self, *, target: Callable[[], object], name: str, daemon: bool) -> Any:
        assert daemon, "a program that ends does not wait for it"
        return _Thread(self, name, target)

    def current_thread(self) -> Any:
        return self.current

    def clock(self) -> float:
        self._count()
        return self.now

    # what a test does

    def submit(self, function: Callable[..., Result], *args: Any, **named: Any) -> Future[Result]:
        """Calls a function in a thread of its own, from its first turn on."""
        future: Future[Result] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args, **named))
            except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
                future.set_exception(error)

        _Thread(self, "a call", call).start()
        return future

    def settle(self) -> None:
        """Lets everything happen that can without that time passes.

        Raises:
            Stuck: Something goes on and on.
            AssertionError: A thread ended in an error.
        """
        self._settling = True
        try:
            self._wait(lambda: False, None)
        finally:
            self._settling = False
        for thread in self.threads:
            if thread.error is not None:
                raise AssertionError(f"{thread.name} ended in an error") from thread.error

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, and what is due happen at its time."""
        until = self.now + seconds
        while due := [t.deadline for t in self.threads if not t.ended and t.deadline is not None]:
            if min(due) > until:
                break
            self.now = max(self.now, min(due))
            self.settle()
        self.now = until
        self.settle()

    def result(self, future: Future[Result]) -> Result:
        """Returns the result of a future that has one when all has happened."""
        self.settle()
        return future.result(0)

    def error(self, future: Future[Any]) -> BaseException | None:
        """As :meth:`result`, the exception."""
        self.settle()
        return future.exception(0)

    def end(self) -> None:
        """Ends what still waits; nothing can be done with it afterwards."""
        self.is_over = True
        for thread in self.threads:
            if thread.real is not None:
                thread.go.release()
                thread.real.join(_RUNS_AT_MOST_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.end()

    # what those do that take turns

    def block(self, ready: Callable[[], bool], timeout: float | None = None) -> None:
        """Waits until a condition holds or its time has come.

        Raises:
            Stuck: It is the test that waits, and nobody can bring it about.
        """
        if not self._wait(ready, timeout):
            waiting = ", ".join(thread.name for thread in self.threads[1:] if not thread.ended) or "nobody"
            raise Stuck(f"nobody can go on; there still waits: {waiting}")

    def maybe_hand_on(self) -> None:
        """Lets another one go first, as the dice say."""
        self._count()
        if self._dice is not None and self._dice.random() < _STOPPED_AT_A_LOCK:
            self._wait(_always, None)

    def hand_on(self) -> None:
        """Wakes the next one; the caller's turn is over."""
        self.current = self._next()
        self.current.go.release()

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Hands on; returns when it is the caller's turn again, and whether there was a reason for it."""
        self._count()
        me = self.current
        me.ready, me.deadline = ready, None if timeout is None else self.now + timeout
        self.hand_on()
        if not me.go.acquire(timeout=_RUNS_AT_MOST_S if me is self._test else None):
            self.is_over = True
            raise Stuck(f"{self.current.name} runs and runs")
        if self._calls > _MOST_CALLS:
            self.is_over = True
        self._check_over()
        if me is self._test:
            self._calls = 0
        has_reason = ready() or self._is_due(me)
        me.ready, me.deadline = _always, None
        return has_reason

    def _next(self) -> _Thread:
        """The one whose turn it is next; the test when nobody else can do anything."""
        at = self.threads.index(self.current)
        in_turn = [*self.threads[at + 1 :], *self.threads[: at + 1]]
        able = [thread for thread in in_turn if self._is_able(thread)]
        if not able or self._calls > _MOST_CALLS:
            return self._test
        return able[0] if self._dice is None else self._dice.choice(able)

    def _is_able(self, thread: _Thread) -> bool:
        if thread.ended or (thread is self._test and self._settling):
            return False
        return thread.ready() or self._is_due(thread)

    def _is_due(self, thread: _Thread) -> bool:
        return thread.deadline is not None and thread.deadline <= self.now

    def _count(self) -> None:
        self._check_over()
        self._calls += 1
        if self._calls > _MOST_CALLS and self.current is not self._test:
            self.is_over = True
            self._test.go.release()
            raise _Over

    def _check_over(self) -> None:
        if self.is_over:
            if threading.current_thread() is self._real:
                raise Stuck("the threads went on and on, or it is over")
            raise _Over
