"""A call that goes on when its task has ended, so that its batch does not wait for it.

Owns the file by which the workers of a machine know that it goes on, and what it came to.

Invariants: what it came to is taken once, by the delivery that follows those that were put off for it, or by
the last of these where its batch is repeated. One whose process has ended is known as that, since the lock of
its file goes with the process, whatever it has forked; its message is called anew and not left again, so that
a call that ends its worker is found as any other. What it says once its worker closes the handler is not
believed: its message is called anew. So it is where the loop of a coroutine was held by another call.

Threads: the call's own, and a watch for each.
Processes: Spark's Python workers of one machine, and the processes handlers are isolated in.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pickle
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from jobs.handler.handler_loop import CANCEL_S, HandlerLoop
from jobs.handler.results import CallMade
from jobs.handler.slow_calls import SlowCalls, named
from jobs.handler.verdicts import failure, timed_out
from jobs.handler.watchdog import Watchdog

_log = logging.getLogger(__name__)

MOST_HELD_BYTES = 128 << 20
"""Of the batches that such calls hold in a process: each has all of its own."""
_ANSWER_S = 1.0
"""So soon a loop answers that is not held."""
_LOOK_S = 0.1
"""So often it is asked whether a call that is waited for goes on: who waits for a lock may be refused it."""


class Leave(Protocol):
    """What `RowCalls` asks about calls that it need not wait for."""

    @property
    def under_way(self) -> int:
        """How many of the group's calls go on in this process whose tasks have ended, or are about to."""

    def __call__(
        self, batch: pa.RecordBatch, row: int, started: int, since: float, loop: HandlerLoop | None
    ) -> LongCall | None:
        """Has the call of a row go on.

        Args:
            batch: The messages.
            row: Which of them.
            started: When its call began, in epoch us.
            since: The same in seconds of the monotonic clock.
            loop: What it runs on, where it is a coroutine.

        Returns:
            The call; None: it is to be waited for.
        """

    def of(self, rows: Sequence[int]) -> Leave:
        """The same for some rows, as it travels to the process that calls the handler."""


class CallsHere:
    """The calls of this process that go on.

    Attributes:
        closes: Whether the handler is closed under them.
    """

    def __init__(self) -> None:
        self.closes = False
        self.calls: dict[Path, LongCall] = {}

    def held_bytes(self) -> int:
        """Of the batches that they hold."""
        return sum(call.held_bytes for call in self.calls.copy().values())


HERE = CallsHere()


def long_calls_here(directory: Path) -> int:
    """How many calls with files in a directory go on in this process."""
    return sum(path.parent == directory for path in HERE.calls.copy())


def close_under_way() -> None:
    """Says that this process closes its handler next: what calls under way say then is not their own."""
    HERE.closes = True


@dataclass(frozen=True)
class CallFile:
    """What the workers of a machine know of the call of one message.

    Attributes:
        path: A file of the message's own, its name without a dot.
    """

    path: Path

    def look(self, attempt: int, *, must_wait: bool) -> CallMade | Literal["goes on"] | None:
        """What the call came to, or that it goes on.

        Args:
            attempt: The delivery that asks. What is found is only of a call that this one, or the one before,
                was put off for: a message may be given up while its call goes on, and replayed.
            must_wait: Whether it is waited for where it goes on.

        Returns:
            What it came to, which nobody is told again; None where the message has to be called.
        """
        try:
            asked_by = int(self._asked_by.read_bytes())
            goes_on = self._goes_on()
            if attempt not in (asked_by, asked_by + 1):
                if not goes_on:
                    self.forget()
                return None
            if goes_on and not must_wait:
                try:
                    self._ask(attempt)
                except OSError as error:  # a full disk: the next delivery would not be known as the next one
                    _log.warning("a call of the handler is waited for: %s", error)
                else:
                    return "goes on"
            while self._goes_on():
                threading.Event().wait(_LOOK_S)
        except FileNotFoundError:
            return None
        try:
            came: CallMade = pickle.loads(self._came.read_bytes())
        except FileNotFoundError:
            with suppress(OSError):  # a full disk: it may be left again
                self._waited_for.touch()
            self.forget()
            return None
        self.forget()
        return came

    def leave(
        self,
        attempt: int,
        started: int,
        since: float,
        timeout_s: float,
        loop: HandlerLoop | None,
        message: pa.RecordBatch,
        held: int,
    ) -> LongCall | None:
        """Has the call of an attempt go on.

        Args:
            attempt: The delivery whose call it is.
            started: When the call began, in epoch us.
            since: The same in seconds of the monotonic clock.
            timeout_s: How long it may take.
            loop: What it runs on, where it is a coroutine.
            message: The message.
            held: Bytes of the batch that it holds.

        Returns:
            The call; None where it has to be waited for: an earlier one ended its process, such calls hold
            too much already, the disk is full, or the system has no further thread.
        """
        if self.path in HERE.calls:  # of an earlier delivery: nothing else is to open its file here
            return None
        if self._waited_for.exists() or HERE.held_bytes() + held > MOST_HELD_BYTES:
            return None
        with ExitStack() as undo:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
                undo.callback(os.close, descriptor)
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                undo.callback(self.forget)
                self._came.unlink(missing_ok=True)
                self._ask(attempt)
                call = LongCall(self, descriptor, started, since, timeout_s, loop, message, held)
            except (BlockingIOError, PermissionError):  # one of an earlier delivery, in another process
                return None
            except (OSError, RuntimeError) as error:
                _log.warning("a call of the handler cannot be left under way: %s", error)
                return None
            undo.pop_all()
            return call

    def await_end(self, *, until_over: bool) -> bool:
        """Whether the call goes on, whoever asks what it came to.

        Args:
            until_over: Waits until it does not.
        """
        with suppress(FileNotFoundError):
            while self._goes_on():
                if not until_over:
                    return True
                threading.Event().wait(_LOOK_S)
        return False

    def came_to(self, made: CallMade) -> None:
        """Notes what the call came to, before its lock is given up."""
        self._replace(self._came, pickle.dumps(made))

    def forget(self) -> None:
        """Makes it unknown."""
        for file in (self._asked_by, self._came, self.path):
            file.unlink(missing_ok=True)

    @property
    def _came(self) -> Path:
        return self.path.with_suffix(".came")

    @property
    def _asked_by(self) -> Path:
        return self.path.with_suffix(".asked-by")

    @property
    def _waited_for(self) -> Path:
        return self.path.with_suffix(".waited-for")

    def _ask(self, attempt: int) -> None:
        self._replace(self._asked_by, str(attempt).encode())

    @staticmethod
    def _replace(file: Path, text: bytes) -> None:
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.write_bytes(text)
        draft.replace(file)

    def _goes_on(self) -> bool:
        if self.path in HERE.calls:  # its lock would go with a descriptor that is closed here
            return True
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # as POSIX allows either
            return True
        finally:
            os.close(descriptor)
        return False


class LongCall:
    """A call under way that its task no longer waits for; made by `CallFile.leave`.

    Attributes:
        held_bytes: Of the batch that it holds.
    """

    def __init__(
        self,
        file: CallFile,
        descriptor: int,
        started: int,
        since: float,
        timeout_s: float,
        loop: HandlerLoop | None,
        message: pa.RecordBatch,
        held_bytes: int,
    ) -> None:
        self.held_bytes = held_bytes
        self._file = file
        self._descriptor = descriptor
        self._one = threading.Lock()
        self._is_noted = False
        self._started = started
        self._timeout_s = timeout_s
        self._loop = loop
        slow = SlowCalls(lambda _: message, timeout_s, follows="its batch does not wait for it")
        self._watch = Watchdog(
            timeout_s,
            grace_s=0.0 if loop is None else CANCEL_S,
            follows=f"{named(message)}; its batch did not wait for it, its worker ends",
            on_look=slow.look,
            last_words=self._give_up,
        )
        self._watch.begin(0, since)
        self._watch.__enter__()
        HERE.calls[file.path] = self

    def end(self, made: CallMade) -> None:
        """Notes what it came to."""
        try:
            self._note(made)
        finally:
            self._close()

    def forget(self) -> None:
        """It ended before its task did, which has its outcome: nobody else is to look for it."""
        self._file.forget()
        self._close()

    def _close(self) -> None:
        self._watch.__exit__()
        del HERE.calls[self._file.path]
        os.close(self._descriptor)

    def _give_up(self) -> None:
        # Where another holds the loop it says nothing of this one, which was cancelled: it is made anew.
        if self._loop is None or self._loop.answers(_ANSWER_S):
            self._note((self._started, time.time_ns() // 1_000, timed_out(self._timeout_s)))

    def _note(self, made: CallMade) -> None:
        with self._one:
            if self._is_noted or HERE.closes:
                return
            self._is_noted = True
            try:
                self._file.came_to(made)
            except OSError as error:  # its message is called anew
                _log.warning("what a call of the handler came to cannot be noted: %s", error)
            except Exception as error:  # noqa: BLE001 - what a handler returned is foreign
                self._file.came_to((made[0], made[1], failure(error)))
