"""The order of a start: what was started ends where something after it cannot start."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from jobs.runtime.batch_gate import BatchGate, JobStopped
from jobs.runtime.run_loop import RunLoop
from store_native.errors import Unavailable


class Query:
    """A query that runs until it is stopped."""

    isActive = True
    name = "g group"

    def stop(self) -> None:
        """Ends it."""
        self.isActive = False


def test_streams_that_started_are_ended_when_a_later_one_cannot_start() -> None:
    gate = BatchGate()
    loop = RunLoop(cast(Any, object()), gate)
    first = Query()

    def fails() -> StreamingQuery:
        raise Unavailable("SERVICE_NOT_AVAILABLE", "whom to send to is not known")

    def never() -> StreamingQuery:
        raise AssertionError("it was started behind one that could not")

    with pytest.raises(Unavailable, match="whom to send to"):
        loop.start([lambda: cast(Any, first), fails, never])
    assert not first.isActive
    with pytest.raises(JobStopped), gate.batch():
        pass
