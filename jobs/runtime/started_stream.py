"""A running stream, and how it is started again when only Spark's own start-up took too long.

Owns the telling apart. Spark gives the Python process of a streaming source ten seconds to connect back,
and has no setting for it: on a busy machine that is too short, and the query ends.

Invariants: any other failure stays one, and the starts are bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

MOST_STARTS = 10
_TOO_LATE = ("Python worker failed to connect back", "waiting for the Python worker to connect back")


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
        """Says whether the stream runs, starting it again when its source's process came too late."""
        if self._query.isActive:
            return True
        failed = self._query.exception()
        if failed is None or not self._may_start_again(failed):
            return False
        self._query = self._begin()
        return True

    def failure(self) -> StreamingQueryException | None:
        """Why the stream ended by itself."""
        return None if self._query.isActive else self._query.exception()

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
        if self._left <= 0 or not any(text in str(failed) for text in _TOO_LATE):
            return False
        _log.warning("Spark's Python process took too long to start: the stream is started again")
        return True
