"""How large a group's batches are, so that one lasts about as long as wanted.

Owns the measure of the handler's time and what follows from it: the bound of the next batch, and how many
messages are worth a task.

Invariants: a batch is never larger than the settings' bound nor smaller than one call for every thread; what
was measured is kept beside the checkpoint, so that a restart does not begin with a guess.

Processes: tasks add to the measure, the driver asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from jobs.frames.frame_handler import FrameHandler
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from structured_streaming.source import batch_bound

_log = logging.getLogger(__name__)

FIRST_CALLS = 2
"""Calls for each thread in the first batch of a handler of single messages, which may be a slow one."""
MOST_GROWTH = 10
"""A batch is at most so many times the one before: what was quick may have been no measure of what comes."""
MOST_ROWS_OF_A_TASK = 10_000
"""So many are always worth a second task; below, it costs more than it saves unless the handler is slow."""
_WORTH_A_TASK_S = 0.5
LONGEST_BATCH = 3
"""After so many times what a batch should last none of its calls is begun: the outcomes wait for all."""


_ROWS_OF_A_FRAME = 500
"""A function of DataFrames takes as long for fewer: what it takes then is Spark's."""


class Handled(NamedTuple):
    """What tasks have handled.

    Attributes:
        rows: Messages.
        seconds: Of handling, added up over the tasks.
        retried: Messages that come again.
        given_up: Messages that are DEAD or DROPPED.
        parked: Messages that were not handled, since they wait for others (orderly mode).
        skipped: Messages among those given up that an operator gave up.
        ended: Messages whose call ended its own process, or was given up in it.
        put_off: Messages that were not handled, since their task's time was up.
        found: Messages whose call an earlier task had made.
    """

    rows: int = 0
    seconds: float = 0.0
    retried: int = 0
    given_up: int = 0
    parked: int = 0
    skipped: int = 0
    ended: int = 0
    put_off: int = 0
    found: int = 0


class _Sum(AccumulatorParam[Handled]):
    def zero(self, value: Handled) -> Handled:
        return Handled()

    def addInPlace(self, value1: Handled, value2: Handled) -> Handled:
        return Handled(
            value1.rows + value2.rows,
            value1.seconds + value2.seconds,
            value1.retried + value2.retried,
            value1.given_up + value2.given_up,
            value1.parked + value2.parked,
            value1.skipped + value2.skipped,
            value1.ended + value2.ended,
            value1.put_off + value2.put_off,
            value1.found + value2.found,
        )


class HandlingTime:
    """The measure of one batch; pickled with its tasks, which call it."""

    def __init__(self, spark: SparkSession) -> None:
        """Starts at nothing, on the driver."""
        self._sum = spark.sparkContext.accumulator(Handled(), _Sum())

    def __call__(self, piece: Handled) -> None:
        """Adds a piece; runs on an executor."""
        self._sum.add(piece)

    @property
    def total(self) -> Handled:
        """What all tasks of the batch took."""
        return Handled(*self._sum.value)


def calls_at_a_time(handler: HandlerTarget | FrameHandler, host: HandlerHost) -> tuple[bool, int]:
    """Whether a batch of which nothing is known begins small, and how many messages a task has under way."""
    if isinstance(handler, FrameHandler):
        return True, _ROWS_OF_A_FRAME
    loaded = handler.load()
    single = not loaded.vectorised
    return single, host.concurrency if single and loaded.thread_safe else 1


class BatchSize:
    """The size of a group's next batch.

    Args:
        file: Where the source looks for it.
        most: The settings' bound.
        batch_time_s: How long a batch should last.
        cores: Says how many tasks run at a time; on a cluster that changes.
        concurrency: Calls at a time in each, see `calls_at_a_time`; 1 for a handler of batches.
        handler: Whose time it is: another handler's measure counts for nothing.
    """

    def __init__(
        self,
        file: Path,
        most: int,
        batch_time_s: float,
        cores: Callable[[], int],
        concurrency: int,
        handler: str = "",
    ) -> None:
        self._handler = handler
        self._file = file
        self._most = most
        self._batch_time_s = batch_time_s
        self._cores = cores
        self._concurrency = concurrency
        self._rows_of_a_task = MOST_ROWS_OF_A_TASK

    def begin(self, *, single: bool) -> None:
        """Bounds the first batch of a handler of single messages of which nothing is known yet."""
        known = batch_bound.read(self._file, self._handler)
        if known is not None:
            rate = known / self._cores() / self._batch_time_s
            self._rows_of_a_task = max(1, min(int(rate * _WORTH_A_TASK_S), MOST_ROWS_OF_A_TASK))
        elif single:
            self._write(min(FIRST_CALLS * self._concurrency * self._cores(), self._most))
            self._rows_of_a_task = FIRST_CALLS
        elif batch_bound.read(self._file) is not None:
            self._write(self._most)

    @property
    def rows_of_a_task(self) -> int:
        """So many messages are worth a task of their own."""
        return self._rows_of_a_task

    def learn(self, handled: Handled) -> None:
        """Takes what a batch took.

        One that only parked says nothing of the handler: the next is twice as large.
        """
        if handled.rows == 0 and handled.parked:
            before = batch_bound.read(self._file, self._handler)
            if before is not None and before < self._most:
                self._write(min(2 * before, self._most))
        called = handled.rows - handled.skipped - handled.found
        if called <= 0 or handled.seconds <= 0:
            return
        # A batch of few messages leaves threads idle: it says how long a call takes, not how many fit.
        busy = min(1.0, called / self._concurrency)
        rate = called / handled.seconds / busy  # messages a second, in one task
        cores = self._cores()
        before = batch_bound.read(self._file, self._handler)
        fits = min(int(rate * cores * self._batch_time_s), self._most)
        if before is not None:
            fits = min(fits, before * MOST_GROWTH)
        rows = max(self._concurrency * cores, fits)
        self._rows_of_a_task = max(1, min(int(rate * _WORTH_A_TASK_S), MOST_ROWS_OF_A_TASK))
        if rows != before:
            self._write(rows)

    def _write(self, rows: int) -> None:
        try:
            batch_bound.write(self._file, rows, self._handler)
        except OSError as error:
            _log.warning("the size of the next batch cannot be noted, it is as it was: %s", error)
