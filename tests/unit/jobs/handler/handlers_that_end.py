"""Handlers that hang, die and count; the isolated processes of the tests import them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakemq.handler import Verdict, handler, vectorised


def dies(message: Any) -> Verdict | None:
    """Ends its process where the body says so."""
    said = message.body
    if said == b"exit":
        os._exit(7)
    if said == b"signal":
        signal.raise_signal(signal.SIGSEGV)
    if said == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if said == b"deep":
        overflow()
    if said == b"hang":
        threading.Event().wait()
    if said == b"raise":
        raise ValueError("as it was told to")
    return Verdict.dead("as it was told to") if said == b"dead" else None


def overflow() -> None:
    """Goes on calling itself through C until the stack ends."""
    sys.setrecursionlimit(1 << 30)
    again = ctypes.CFUNCTYPE(None)(overflow)
    again()


def eats(message: Any) -> None:
    """Takes and holds as many MiB as the body says, for a while."""
    held = b"x" * (int(message.body) << 20)
    threading.Event().wait(0.3)
    assert held


def says_who_is_first_to_go(message: Any) -> Verdict:
    """Says how soon the system ends this process where it is short of memory."""
    return Verdict.dead(Path("/proc/self/oom_score_adj").read_text().strip())


def says_where(message: Any) -> Verdict:
    """Says in which process it is called."""
    return Verdict.dead(str(os.getpid()))


def by_script(message: Any) -> Verdict | None:
    """Does what its body says for this attempt, and notes each call in the file that its tag names."""
    script = message.json()
    said = script[min(message.attempt, len(script)) - 1]
    with Path(message.tags).open("a", encoding="utf-8") as notes:
        notes.write(f"{message.queue_offset} {message.attempt}\n")
    if said == "raise":
        raise ValueError("as it was told to")
    if said == "exit":
        os._exit(7)
    if said in ("SIGKILL", "SIGSEGV"):
        signal.raise_signal(signal.Signals[said])
    if said == "hang":
        threading.Event().wait()
    if said == "slow":
        threading.Event().wait(0.1)
    if said == "dead":
        return Verdict.dead("as it was told to")
    return Verdict.retry(None if said == "retry" else int(said)) if said not in ("ok", "slow") else None


def holds_the_interpreter(message: Any) -> None:
    """Hangs in C with the interpreter's lock where the body says so."""
    if message.body == b"hang":
        ctypes.PyDLL(None).sleep(600)
    threading.Event().wait(0.3)


async def holds_the_loop(message: Any) -> None:
    """Hangs without giving the event loop back."""
    await asyncio.sleep(0.01)
    if message.body == b"hang":
        threading.Event().wait()


@vectorised
def batch_dies(batch: pa.RecordBatch) -> None:
    """The same for whole batches."""
    for said in batch.column("body").to_pylist():
        if said == b"exit":
            os._exit(7)
        if said == b"hang":
            threading.Event().wait()


@vectorised
def batch_eats(batch: pa.RecordBatch) -> None:
    """The same as `eats` for whole batches."""
    held = [b"x" * (int(said) << 20) for said in batch.column("body").to_pylist()]
    threading.Event().wait(0.3)
    assert held


class Opened:
    """Writes down what is done with it, into the file that the environment names."""

    def __init__(self) -> None:
        self._note("made")

    def open(self) -> None:
        """Before the first message."""
        self._note("open")

    def __call__(self, message: Any) -> None:
        """A message."""
        self._note(f"call {message.body.decode()}")

    def close(self) -> None:
        """At the end."""
        self._note("close")

    def _note(self, what: str) -> None:
        with Path(os.environ["HANDLER_NOTES"]).open("a", encoding="utf-8") as file:
            file.write(what + "\n")


class OpensSlowly:
    """Takes a second until it is ready."""

    def open(self) -> None:
        """Before the first message."""
        threading.Event().wait(1.0)

    def __call__(self, message: Any) -> None:
        """A message."""


class NeverClosed(Opened):
    """Hangs at the end."""

    def close(self) -> None:
        """Does not return."""
        threading.Event().wait()


class ToldTwice(Opened):
    """Is asked to end once more while it closes, as by PySpark's daemon."""

    def close(self) -> None:
        """Goes on after the second signal."""
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        super().close()


class _OnOneLoop:
    """Made, called and closed on one event loop and its thread."""

    closed = False

    def __init__(self) -> None:
        self.made_on = asyncio.get_running_loop(), threading.get_ident()

    async def __call__(self, message: Any) -> None:
        """Refuses another loop."""
        await asyncio.sleep(0)
        self._check()

    def _check(self) -> None:
        assert (asyncio.get_running_loop(), threading.get_ident()) == self.made_on


class OpenedOnLoop(_OnOneLoop):
    """The same with coroutines."""

    async def open(self) -> None:
        """Refuses another loop."""
        self._check()

    async def close(self) -> None:
        """Refuses another loop."""
        self._check()
        type(self).closed = True


class PlainlyOpenedOnLoop(_OnOneLoop):
    """The same with plain functions."""

    def open(self) -> None:
        """Refuses another loop."""
        self._check()

    def close(self) -> None:
        """Refuses another loop."""
        self._check()
        type(self).closed = True


class DoesNotClose(_OnOneLoop):
    """Fails when it is closed."""

    async def close(self) -> None:
        """Raises."""
        raise ConnectionError("no pool")


class DoesNotOpen:
    """Fails when it is opened on its loop."""

    async def open(self) -> None:
        """Raises."""
        raise ConnectionError("no pool")

    async def __call__(self, message: Any) -> None:
        """Is not reached."""


async def leaves_the_loop_held(message: Any) -> None:
    """Begins what is no call and holds the loop, where the body says so."""
    if message.body == b"holds":
        asyncio.get_running_loop().call_later(0.2, threading.Event().wait)


async def waits_on_a_thread(message: Any) -> None:
    """Has a thread of the loop's pool wait, whose number of the process a file gets."""
    Path(message.body.decode()).write_text(str(os.getpid()))  # noqa: ASYNC240 - once
    await asyncio.to_thread(threading.Event().wait)


def dies_late(message: Any) -> None:
    """Ends its process: at once where a file is there, else after a second, and makes the file."""
    if not message.body:
        threading.Event().wait(3)
        return
    mark = Path(message.body.decode())
    if not mark.exists():
        threading.Event().wait(1.0)
        mark.touch()
    os._exit(7)


@handler(thread_safe=False)
class NotThreadSafe:
    """Called on the thread that made it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def __call__(self, message: Any) -> None:
        """Refuses another thread."""
        assert threading.get_ident() == self.thread


class NotThreadSafeCall:
    """Marked where it is called."""

    @handler(thread_safe=False)
    def __call__(self, message: Any) -> None:
        """Nothing."""


class AsyncInstance:
    """An instance of it is a coroutine function in all but name."""

    async def __call__(self, message: Any) -> None:
        """Nothing."""


async_instance = AsyncInstance()


class WithoutCall:
    """No handler."""
