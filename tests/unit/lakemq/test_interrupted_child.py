"""What is killed when a block that starts a process is interrupted: that process, and no other."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lakemq.interrupted_child import killed_when_interrupted


def interrupted(block: Callable[[], object]) -> None:
    """Ctrl-C, when the block has done what it does."""

    def run() -> None:
        with killed_when_interrupted():
            block()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def test_what_the_block_has_started_is_killed_and_what_was_there_is_not() -> None:
    with sleeper() as before:
        started: list[subprocess.Popen[bytes]] = []
        interrupted(lambda: started.append(subprocess.Popen(["sleep", "600"], start_new_session=True)))
        assert started[0].wait(30) == -9
        assert before.poll() is None


def test_a_child_that_another_thread_leaves_meanwhile_is_not_killed() -> None:
    go_on, has_started = threading.Event(), threading.Event()
    left: list[subprocess.Popen[bytes]] = []

    def start_and_end() -> None:
        left.append(subprocess.Popen(["sleep", "600"], start_new_session=True))
        has_started.set()
        go_on.wait(30)

    thread = threading.Thread(target=start_and_end)
    thread.start()
    try:
        assert has_started.wait(30)

        def leave() -> None:
            go_on.set()
            thread.join(30)

        interrupted(leave)
        assert left[0].poll() is None
    finally:
        left[0].kill()
        left[0].wait(30)


def test_a_child_of_our_own_session_is_not_killed_nor_any_by_another_failure() -> None:
    with sleeper() as kept:
        with pytest.raises(ValueError, match="no JVM"), killed_when_interrupted():
            raise ValueError("no JVM")
        others: list[subprocess.Popen[bytes]] = []
        interrupted(lambda: others.append(subprocess.Popen(["sleep", "600"])))
        assert (kept.poll(), others[0].poll()) == (None, None)
        others[0].kill()
        others[0].wait(30)
