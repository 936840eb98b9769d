"""What holds up the messages that verdicts send, or the rows that they write to a table, and since when.

Owns the pauses between two tries, what is said of them and how often, and from when on a run need not wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from store_native.errors import LakeMQError

_log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
SAID_AGAIN_S = 600.0
LEFT_OUT_S = 30.0
"""How long a run that ends by itself waits: longer than a broker takes to restart."""


class HoldUp:
    """The hold-up of one stream of a group; set by the stream, seen by the job's main thread."""

    def __init__(
        self,
        group: str,
        *,
        what: str | None = None,
        until: str = "the broker takes it",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins with none.

        Args:
            group: The group.
            what: What is held up, in words; None for what its verdicts send.
            until: How long it is tried again, in words.
            clock: Monotonic seconds.
        """
        self._group = group
        self._what = what or f"what verdicts of {group} send"
        self._until = until
        self._clock = clock
        self._since: float | None = None
        self._why = ""
        self._said_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    def meet(self, error: LakeMQError) -> float:
        """Notes why nothing more can be sent; returns how long to pause before the next try."""
        now, why = self._clock(), str(error)
        if self._since is None:
            self._since, self._pause_s = now, FIRST_PAUSE_S
        if why != self._why or now - self._said_at >= SAID_AGAIN_S:
            _log.warning(
                "%s waits, the group goes on: %s%s",
                *(self._what, why, "" if error.retryable else f"; {self._way_out}"),
            )
            self._why, self._said_at = why, now
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def end(self) -> None:
        """Notes that all that was held up is sent, or given up."""
        if self._since is not None:
            _log.warning("%s goes on", self._what)
        self._since, self._why = None, ""

    @property
    def seconds(self) -> float:
        """How long it has lasted, 0 without one."""
        return 0.0 if self._since is None else self._clock() - self._since

    @property
    def is_long(self) -> bool:
        """Whether it has lasted longer than what passes by itself."""
        return self._since is not None and self.seconds >= LEFT_OUT_S

    @property
    def why(self) -> str:
        """What the broker or the table said, and the way out."""
        return f"{self._why}; {self._way_out}"

    @property
    def _way_out(self) -> str:
        return (
            f"it is tried again until {self._until}; lakemq outbox discard --group {self._group} gives it up"
        )
