"""A call that does not return is noticed, and one that does is left alone."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import threading

import pytest

from jobs.handler.watchdog import EXIT_STATUS, Watchdog
from tests.support.waiting import wait_until

DEADLINE_S = 30.0


def test_the_oldest_call_under_way_is_the_one_that_is_late() -> None:
    now = [0.0]
    late = threading.Event()
    with Watchdog(0.2, on_late=lambda timeout_s: late.set(), clock=lambda: now[0]) as watch:
        watch.begin(1)
        now[0] = 0.15
        watch.begin(2)
        watch.end(1)
        now[0] = 0.3  # the first would be late, the second is not
        assert not late.wait(0.1)
        now[0] = 0.36
        assert late.wait(DEADLINE_S)


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    with Watchdog(60.0):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_late_call_ends_its_process() -> None:
    hangs = (
        "from jobs.handler.watchdog import Watchdog; import threading\n"
        "with Watchdog(0.1) as watch: watch.begin(1); threading.Event().wait()"
    )
    ended = subprocess.run([sys.executable, "-c", hangs], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == EXIT_STATUS
    said = "lakemq: the handler did not return within 0.1 s: its worker ends, its task runs again\n"
    assert ended.stderr == said


def test_one_that_has_some_time_more_is_late_for_what_it_may_take() -> None:
    hangs = (
        "from jobs.handler.watchdog import Watchdog; import threading, time; began = time.monotonic()\n"
        "def end(): print(time.monotonic() - began, flush=True)\n"
        "with Watchdog(0.1, grace_s=0.6, follows='it was cancelled', last_words=end) as watch:\n"
        "    watch.begin(1); threading.Event().wait()"
    )
    ended = subprocess.run([sys.executable, "-c", hangs], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.stderr == "lakemq: the handler did not return within 0.1 s: it was cancelled\n"
    assert float(ended.stdout) > 0.7


def test_a_call_that_holds_the_interpreter_ends_its_process() -> None:
    holds = (
        "from jobs.handler.watchdog import Watchdog; import ctypes\n"
        "with Watchdog(0.1) as watch: watch.begin(1); ctypes.PyDLL(None).sleep(600)"
    )
    ended = subprocess.run([sys.executable, "-c", holds], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode != 0
    assert "Timeout" in ended.stderr


def test_a_watch_that_is_over_leaves_the_others_theirs() -> None:
    """A process has one timer for all of them."""
    holds = (
        "from jobs.handler.watchdog import Watchdog; import ctypes, threading\n"
        "with Watchdog(0.5) as watch:\n"
        "    watch.begin(1)\n"
        "    with Watchdog(0.3): threading.Event().wait(0.2)\n"
        "    ctypes.PyDLL(None).sleep(600)"
    )
    ended = subprocess.run([sys.executable, "-c", holds], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode != 0
    assert "Timeout" in ended.stderr


def test_the_timer_behind_the_watches_is_the_longest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[float | None] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, exit: said.append(seconds))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: said.append(None))
    with Watchdog(900.0):
        wait_until(lambda: said == [903.0], DEADLINE_S)
        with Watchdog(10.0):
            wait_until(lambda: len(said) > 1, DEADLINE_S)
    assert set(said[:-1]) == {903.0}
    assert said[-1] is None


def test_a_watch_that_is_over_ends_nobody() -> None:
    quiet = (
        "from jobs.handler.watchdog import Watchdog; import threading\n"
        "with Watchdog(0.1) as watch: pass\n"
        "threading.Event().wait(2); print('alive')"
    )
    ended = subprocess.run([sys.executable, "-c", quiet], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (ended.returncode, ended.stdout) == (0, "alive\n")
