"""What a forked process must not share with the one it came from: connections, locks, threads.

Owns who is told in a new process.

Invariants: it is told before the fork returns there, on the only thread there is by then; who is gone is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod

_told: list[WeakMethod[Callable[[], None]]] = []


def tell_in_child(begin_again: Callable[[], None]) -> None:
    """Has a method called in every process that is forked from this one, as long as its object lives."""
    _told[:] = [method for method in _told if method() is not None]
    _told.append(WeakMethod(begin_again))


def _tell() -> None:
    for method in _told:
        begin_again = method()
        if begin_again is not None:
            begin_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
