"""A running stream, and how it is started again when only its source's Python process was at fault.

Owns the starts. Spark gives the process in which a source plans ten seconds to connect back, and has no
setting for it: on a busy machine that is too short, and the query ends. It ends too when that process does,
which a system short of memory kills; then it goes on where its checkpoint says.

Invariants: any other failure stays one, and the starts without a batch in between are bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from jobs.runtime.stream_failure import is_planner_death, is_start_too_late

_log = logging.getLogger(__name__)

MOST_STARTS = 10


class StartedStream:
    """A stream that runs from the moment it is made."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        """Starts the stream.

        Args:
            start: starts the query; called again only when the one before has ended.
        """
        self._start = start
        self._left = MOST_STARTS
        self._query = self._begin()

    @property
    def query(self) -> StreamingQuery:
        """The query of the newest start."""
        return self._query

    def goes_on(self) -> bool:
        """Says whether the stream runs; starts it again where its source's process was too late, or ended."""
        if self._query.isActive:
            return True
        failed = self._query.exception()
        if failed is None:
            return False
        if self._query.lastProgress is not None:
            self._left = MOST_STARTS
        if not self._may_start_again(failed):
            return False
        self._query = self._begin()
        return True

    def failure(self) -> StreamingQueryException | None:
        """Why the stream ended by itself; None where it would be started again."""
        failed = None if self._query.isActive else self._query.exception()
        if failed is None:
            return None
        starts_again = self._left > 0 or self._query.lastProgress is not None
        return None if starts_again and _why_again(failed) else failed

    def stop(self) -> None:
        """Stops the query."""
        self._query.stop()

    def _begin(self) -> StreamingQuery:
        while True:
            self._left -= 1
            try:
                return self._start()
            except Exception as error:
                if not self._may_start_again(error):
                    raise

    def _may_start_again(self, failed: Exception) -> bool:
        why = _why_again(failed)
        if why is None or self._left <= 0:
            return False
        _log.warning("Spark's Python process %s: the stream is started again", why)
        return True


def _why_again(failed: Exception) -> str | None:
    if is_start_too_late(failed):
        return "did not start in time"
    return "ended" if is_planner_death(failed) else None
