"""A call that goes on when its task has ended, so that its batch does not wait for it.

Owns the file by which the workers of a machine know that it goes on, and what it came to.

Invariants: what it came to is taken once, by the delivery that follows those that were put off for it, or by
the last of these where its batch is repeated. One whose process has ended is known as that, since the lock of
its file goes with the process; its message is called anew and not left again, so that a call that ends its
worker is found as any other.

Threads: the call's own, and a watch for each.
Processes: Spark's Python workers of one machine.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from jobs.handler.results import CallMade
from jobs.handler.slow_calls import SlowCalls
from jobs.handler.verdicts import timed_out
from jobs.handler.watchdog import Watchdog

_log = logging.getLogger(__name__)

Leave = Callable[[int, int, float], "LongCall | None"]
"""Has a row's call go on that began then (epoch us, monotonic seconds); None: it is to be waited for."""
_DIGITS = 20
_under_way: set[LongCall] = set()


def long_calls_here() -> int:
    """How many calls go on in this process whose tasks have ended, or are about to."""
    return len(_under_way)


@dataclass(frozen=True)
class CallFile:
    """What the workers of a machine know of the call of one message.

    Attributes:
        path: A file of the message's own.
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
        with self._opened(os.O_RDWR) as descriptor:
            if descriptor is None:
                return None
            asked_by = int(os.pread(descriptor, _DIGITS, 0) or b"0")
            goes_on = not _locked(descriptor, fcntl.LOCK_SH)
            if attempt not in (asked_by, asked_by + 1):
                if not goes_on:
                    self.forget()
                return None
            if goes_on and not must_wait:
                os.pwrite(descriptor, b"%*d" % (_DIGITS, attempt), 0)
                return "goes on"
            if goes_on:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            try:
                came: CallMade | None = pickle.loads(self._came.read_bytes())
            except FileNotFoundError:
                came = None
                self._waited_for.touch()
            self.forget()
            return came

    def leave(
        self, attempt: int, started: int, since: float, timeout_s: float, message: pa.RecordBatch
    ) -> LongCall | None:
        """Has the call of an attempt go on.

        Args:
            attempt: The delivery whose call it is.
            started: When the call began, in epoch us.
            since: The same in seconds of the monotonic clock.
            timeout_s: How long it may take; then its process ends.
            message: The message.

        Returns:
            The call; None where it has to be waited for, since an earlier one ended its process or the disk
            is full.
        """
        if self._waited_for.exists():
            return None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            _log.warning("a call of the handler cannot be left under way: %s", error)
            return None
        try:
            if _locked(descriptor, fcntl.LOCK_EX):
                self._came.unlink(missing_ok=True)
                os.pwrite(descriptor, b"%*d" % (_DIGITS, attempt), 0)
                return LongCall(self, descriptor, started, since, timeout_s, message)
        except OSError as error:
            _log.warning("a call of the handler cannot be left under way: %s", error)
        os.close(descriptor)
        return None

    def came_to(self, made: CallMade) -> None:
        """Notes what the call came to, before its lock is given up."""
        draft = self.path.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(made))
        draft.replace(self._came)

    def forget(self) -> None:
        """Makes it unknown."""
        self._came.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    @property
    def _came(self) -> Path:
        return self.path.with_suffix(".came")

    @property
    def _waited_for(self) -> Path:
        return self.path.with_suffix(".waited-for")

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int | None]:
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class LongCall:
    """A call under way that its task no longer waits for; made by `CallFile.leave`."""

    def __init__(
        self,
        file: CallFile,
        descriptor: int,
        started: int,
        since: float,
        timeout_s: float,
        message: pa.RecordBatch,
    ) -> None:
        self._file = file
        self._descriptor = descriptor
        slow = SlowCalls(lambda _: message, timeout_s, follows="its batch does not wait for it")
        self._watch = Watchdog(
            timeout_s,
            on_look=slow.look,
            last_words=lambda: self._note((started, _us(started, timeout_s), timed_out(timeout_s))),
        )
        _under_way.add(self)
        self._watch.begin(0, since)
        self._watch.__enter__()

    def end(self, made: CallMade) -> None:
        """Notes what it came to."""
        self._note(made)
        self._close()

    def forget(self) -> None:
        """It ended before its task did, which has its outcome: nobody else is to look for it."""
        self._file.forget()
        self._close()

    def _close(self) -> None:
        self._watch.__exit__()
        _under_way.discard(self)
        os.close(self._descriptor)

    def _note(self, made: CallMade) -> None:
        try:
            self._file.came_to(made)
        except OSError as error:  # its message is called anew
            _log.warning("what a call of the handler came to cannot be noted: %s", error)


def _locked(descriptor: int, kind: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False


def _us(started: int, after_s: float) -> int:
    return started + round(after_s * 1_000_000)
