"""A run of a job, from its start to its end.

Owns which states are told of it, and when.

Invariants: a run that is told has a START and one COMPLETE, FAIL or ABORT, unless its process is killed;
RUNNING is told with the first rows, and again RUNNING_S later at the soonest. What cannot be told fails no
job.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import lakemq
from jobs.lineage.environment import is_asked_for, namespace_of, parent_of
from jobs.lineage.event import LineageJob, RunState, State, Written
from jobs.lineage.event_sender import EventSender, open_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.lineage.datasets import Dataset
    from jobs.lineage.environment import ParentRun

_log = logging.getLogger(__name__)

RUNNING_S = 60.0


class JobRun:
    """A run that is told.

    Args:
        job: whose run it is.
        inputs: what it reads.
        outputs: what it writes; the rows of the first are counted.
        spark_version: of the session.
        parent: what started it.
        sender: takes the events.
        clock: monotonic, in seconds.
        now: the time of day.
    """

    def __init__(
        self,
        job: LineageJob,
        inputs: Sequence[Dataset],
        outputs: Sequence[Dataset],
        spark_version: str,
        parent: ParentRun | None,
        sender: EventSender,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._job = job
        self._inputs = inputs
        self._outputs = outputs
        self._spark_version = spark_version
        self._parent = parent
        self._sender = sender
        self._clock = clock
        self._now = now
        self._run_id = str(uuid.uuid4())
        self._rows: int | None = None
        self._told_at: float | None = None

    def handled(self, inputs: Sequence[Dataset], rows: int) -> None:
        """Notes what it reads by now, and counts rows of the first output; at times that is told."""
        self._inputs = inputs
        self._rows = (self._rows or 0) + rows
        at = self._clock()
        if self._told_at is None or at - self._told_at >= RUNNING_S:
            self._told_at = at
            self.tell("RUNNING")

    def tell(self, state: State, failure: str | None = None) -> None:
        """Has a state sent, and does not wait."""
        outputs = [Written(each, self._rows if at == 0 else None) for at, each in enumerate(self._outputs)]
        self._sender.send(
            RunState(
                *(state, self._now(), self._run_id, self._job, self._inputs, outputs),
                *(self._spark_version, lakemq.__version__, self._parent, failure),
            )
        )


@contextmanager
def job_run(
    kind: str,
    name: str,
    is_streaming: bool,
    inputs: Sequence[Dataset],
    outputs: Callable[[], Sequence[Dataset]],
    spark: SparkSession,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[JobRun | None]:
    """Tells a run of a job while the block runs; None unless the environment asks for it.

    Args:
        kind, name, is_streaming: of the job; see LineageJob.
        inputs: what it reads.
        outputs: asked only for a run that is told; see JobRun.
        spark: the session.
        environment: the variables.
    """
    if not is_asked_for(environment):
        yield None
        return
    sender = EventSender(open_client)
    try:
        job = LineageJob(namespace_of(environment), name, kind, is_streaming)
        run = JobRun(job, inputs, _known(outputs), spark.version, _parent(environment), sender)
        run.tell("START")
        try:
            yield run
        except Exception as error:
            run.tell("FAIL", str(error))
            raise
        except BaseException:
            run.tell("ABORT")
            raise
        run.tell("COMPLETE")
    finally:
        sender.close()


def _known(outputs: Callable[[], Sequence[Dataset]]) -> Sequence[Dataset]:
    try:
        return outputs()
    except Exception as error:  # noqa: BLE001 - a catalog that does not say where a table is
        _log.warning("the run is told without what it writes: %s", error)
        return ()


def _parent(environment: Mapping[str, str]) -> ParentRun | None:
    try:
        return parent_of(environment)
    except ValueError as error:
        _log.warning("the run is told without its parent: %s", error)
        return None
