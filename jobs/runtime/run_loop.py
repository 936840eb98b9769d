"""Running a set of streams until they are stopped, fail, or have nothing left to do.

Owns the main thread's wait and the order of stopping.

Invariants: a stop comes between batches, all streams end together, and a failed stream is reported with its
own reason. A batch under way is waited for, but not longer than the stop may take, and not while the broker
is away.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs.runtime.batch_gate import BatchGate, JobStopped
from jobs.runtime.spark_end import SparkEnded, ended_by_the_signal
from jobs.runtime.started_stream import StartedStream
from jobs.runtime.stream_failure import reason_of
from store_native.errors import Closed, LakeMQError, Unavailable, from_code

_log = logging.getLogger(__name__)

_TICK_S = 0.25
_IDLE_QUESTION_S = 0.5
AWAY_S = 10.0
"""How long a stop waits for batches inside while the broker is away: longer than a broker's restart."""
STOP_TIMEOUT_S = 30.0
"""How long a stop waits for batches inside whose handler does not return, their end as given up included."""
_CANCELLED_S = 5.0
"""Of that time so much is for the end of batches that are given up, a quarter of it at most."""
_PROXY_LOGGERS = ("py4j.clientserver", "py4j.java_gateway")
"""Where Py4J logs an exception of a foreachBatch function, with the JVM's threads pinned and without."""


class RunLoop:
    """Waits on running queries."""

    def __init__(
        self,
        spark: SparkSession,
        gate: BatchGate,
        *,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._gate = gate
        self._stop_timeout_s = stop_timeout_s
        self._cancelled_s = min(_CANCELLED_S, stop_timeout_s / 4)
        self._clock = clock
        self._stop = threading.Event()
        self._unasked = False

    def stop(self) -> None:
        """Asks the loop to end; safe from a signal handler or another thread."""
        self._stop.set()

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask for a stop, a second one ends the process as usual.

        Beside the main thread there are no signals: `stop` is all that asks.

        Raises:
            SparkEnded: from within, a stop was asked for, and what failed is that Spark was ended with it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            if self._stop.is_set():
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self.stop()

        before: dict[int, Any] = {
            number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        except Exception as error:
            if self._stop.is_set() and ended_by_the_signal(self._spark):
                raise SparkEnded from error
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(
        self,
        starts: Sequence[Callable[[], StreamingQuery]],
        *,
        is_away: Callable[[], bool] = lambda: False,
        give_up: Callable[[], None] = lambda: None,
    ) -> list[StartedStream]:
        """Starts streams one after the other; where one cannot start, those before it are ended.

        Args:
            starts: each starts one query.
            is_away: says whether the broker is away.
            give_up: called when the batches inside are given up.
        """
        streams: list[StartedStream] = []
        try:
            for start in starts:
                streams.append(StartedStream(start))
        except BaseException:
            self._end(streams, is_away, give_up)
            raise
        return streams

    def run(
        self,
        streams: Sequence[StartedStream],
        *,
        is_idle: Callable[[], bool] | None = None,
        idle_s: float = 0.0,
        is_away: Callable[[], bool] = lambda: False,
        give_up: Callable[[], None] = lambda: None,
    ) -> bool:
        """Waits until a stop is asked for, a stream ends, or all has been idle for `idle_s`.

        Args:
            streams: running streams; all are stopped at the end.
            is_idle: says whether there is nothing to do; None runs until stopped.
            idle_s: how long that has to last.
            is_away: says whether the broker is away.
            give_up: called when the batches inside are given up.

        Returns:
            Whether it ended because all was idle.

        Raises:
            LakeMQError: SYSTEM_ERROR with the reason when a stream failed.
        """
        idle_since: float | None = None
        idle = False
        asked_at = self._clock()
        try:
            while not self._stop.wait(_TICK_S):
                if not all(stream.goes_on() for stream in streams):
                    break
                if is_idle is None or self._clock() - asked_at < _IDLE_QUESTION_S:
                    continue
                asked_at = self._clock()
                if not self._ask(is_idle):
                    idle_since = None
                elif idle_since is None:
                    idle_since = asked_at
                if idle_since is not None and self._clock() - idle_since >= idle_s:
                    idle = True
                    break
        finally:
            failure = self._end(streams, is_away, give_up)
        if failure is not None:
            raise from_code("SYSTEM_ERROR", failure)
        return idle

    def _ask(self, is_idle: Callable[[], bool]) -> bool:
        try:
            answer = is_idle()
        except LakeMQError as error:
            if not isinstance(error, Unavailable | Closed):  # a broker that stops says that it is closed
                raise
            if not self._unasked:
                _log.warning("whether the group is idle cannot be asked now: %s", error)
            self._unasked = True
            return False
        self._unasked = False
        return answer

    def run_through(
        self,
        stages: Iterable[Callable[[], Sequence[StartedStream]]],
        *,
        is_away: Callable[[], bool] = lambda: False,
        give_up: Callable[[], None] = lambda: None,
    ) -> bool:
        """Waits for streams that end by themselves, stage after stage, or until a stop is asked for.

        Args:
            stages: each starts its streams, once those of the stage before have ended; the next one is
                asked for then.
            is_away: says whether the broker is away.
            give_up: called when the batches inside are given up.

        Returns:
            Whether all stages have ended by themselves.

        Raises:
            LakeMQError: SYSTEM_ERROR with the reason when a stream failed; no stage follows.
        """
        streams: Sequence[StartedStream] = ()
        whole = False
        try:
            for start in stages:
                if self._stop.is_set():
                    break
                streams = start()
                if not self._have_ended(streams):
                    break
            else:
                whole = True
        finally:
            failure = self._end(streams, is_away, give_up)
        if failure is not None:
            raise from_code("SYSTEM_ERROR", failure)
        return whole

    def _have_ended(self, streams: Sequence[StartedStream]) -> bool:
        """Waits until all have ended by themselves; False when one failed or a stop was asked for."""
        while True:
            running = [stream.goes_on() for stream in streams]
            if _first_failure(streams) is not None:
                return False
            if not any(running):
                return True
            if self._stop.wait(_TICK_S):
                return False

    def _end(
        self, streams: Sequence[StartedStream], is_away: Callable[[], bool], give_up: Callable[[], None]
    ) -> str | None:
        """Stops all streams between batches and says why the first of them had failed by itself."""
        self._gate.close()
        closed_at = self._clock()
        why = self._await_batches(is_away, closed_at)
        failure = _first_failure(streams)
        with _rejected_batches_unlogged(self._spark):
            if why is not None:
                _log.warning("%s: the batch under way is given up, the next start repeats it", why)
                self._gate.give_up()
                give_up()
                for stream in streams:
                    self._spark.sparkContext.cancelJobGroup(str(stream.query.runId))
                left_s = closed_at + self._stop_timeout_s - self._clock()
                self._gate.await_empty(max(left_s, self._cancelled_s))
            self._gate.refuse()
            for stream in streams:
                stream.stop()
        return failure

    def _await_batches(self, is_away: Callable[[], bool], closed_at: float) -> str | None:
        """Waits for the batches inside; returns why they are not waited for any longer."""
        away_since: float | None = None
        while not self._gate.await_empty(_TICK_S):
            if self._gate.all_rest:
                return "what verdicts send has to wait"
            asked_at = self._clock()
            if asked_at - closed_at >= self._stop_timeout_s - self._cancelled_s:
                return f"the batch did not end in time for a stop within {self._stop_timeout_s:g} s"
            if not is_away():
                away_since = None
                continue
            away_since = asked_at if away_since is None else away_since
            if self._clock() - away_since >= AWAY_S:
                return "the broker is away"
        return None


@contextmanager
def _rejected_batches_unlogged(spark: SparkSession) -> Iterator[None]:
    """Keeps Spark and Py4J quiet while batches are rejected: each logs one as a failure, with its stack.

    That takes milliseconds, no batch is inside then, and what is refused has lost nothing.
    """
    proxies = [logging.getLogger(name) for name in _PROXY_LOGGERS]
    for proxy in proxies:
        proxy.addFilter(_is_no_refusal)
    try:
        with _without_spark_log(spark):
            yield
    finally:
        for proxy in proxies:
            proxy.removeFilter(_is_no_refusal)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], JobStopped)


@contextmanager
def _without_spark_log(spark: SparkSession) -> Iterator[None]:
    context = getattr(spark, "sparkContext", None)
    if context is None:  # serverless: the log is not ours
        yield
        return
    jvm = context._jvm
    level = jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
    context.setLogLevel("OFF")
    try:
        yield
    finally:
        context.setLogLevel(level)


def _first_failure(streams: Sequence[StartedStream]) -> str | None:
    for stream in streams:
        failed = stream.failure()
        if failed is not None:
            return f"the stream {stream.query.name!r} failed: {reason_of(failed)}"
    return None
