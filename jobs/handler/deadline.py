"""When a task of a batch begins no further calls.

Owns the time that the calls of one task may take before what has not begun is put off.

Invariants: it runs from the task's first call, not from its start: however long a handler takes to open, the
first calls are made.

Processes: executors, and the processes handlers are isolated in.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """The deadline of one task.

    Args:
        limit_s: Seconds from the first call; None: there is none. Kept as an attribute.
        clock: Seconds that never go back.
    """

    def __init__(self, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._at: float | None = None

    def begin(self) -> None:
        """Notes a call; the first one counts."""
        if self._at is None and self.limit_s is not None:
            self._at = self._clock() + self.limit_s

    @property
    def passed(self) -> bool:
        """Whether no further call is begun."""
        return self._at is not None and self._clock() >= self._at

    @property
    def left_s(self) -> float | None:
        """Seconds until then; None: there is no deadline."""
        return self.limit_s if self._at is None else max(0.0, self._at - self._clock())


NEVER = Deadline(None)
"""Of tasks whose calls are all made."""
