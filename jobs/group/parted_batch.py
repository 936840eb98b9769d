"""A batch that ends Spark's workers though its handler has a process of its own, handled in smaller parts.

Owns the search for the messages that do it: a handler that kills its parent, a container that is ended for
its memory with all that is in it.

Invariants: a part that ends its worker is halved; a message whose own part does so twice is RETRY with the
reason `worker died`, and is not called again. No row is in the ledger before all are: they wait on the driver
for the batch's one commit. What a read raises is no death: it ends the batch.

Processes: the driver; the tasks are pickled to executors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES, PARKED, RETRY
from delta_tables.task_rows import ArrowFunction
from jobs.group.batch_parts import BatchPart
from jobs.group.handled_messages import without_repeats
from jobs.group.known_attempts import Attempt
from jobs.group.map_arrow import map_in_arrow
from jobs.group.outcomes import OutcomeTask
from jobs.group.slice_tasks import per_bin
from jobs.group.task_attempt import of_this_task
from jobs.group.task_part import TaskPart
from jobs.group.worker_death import DIED_BEFORE, is_worker_death
from jobs.redelivery.original_position import original_positions
from store_native.errors import from_code

_POSITION = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")
_ROLL = "task BIGINT, topic STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, attempt INT"
_TRIES_ALONE = 2
"""A worker that is lost by chance, with its host, costs no message an attempt."""


class WorkerDiedError(Exception):
    """A task is not tried again: its worker died."""


class _Texts(AccumulatorParam[list[str]]):
    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        value1.extend(value2)
        return value1


@dataclass(frozen=True)
class RollCall:
    """Reads of a task's messages which they are."""

    read: ArrowFunction
    group: str

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the number of each task and the position of each of its messages, in the task's order."""
        for batch in numbers:
            for place in range(batch.num_rows):
                seen: set[tuple[str, int]] = set()
                number = batch.slice(place, 1)
                for read in self.read(iter([number])):
                    rows = without_repeats(read, self.group, seen)
                    at = original_positions(rows, self.group)
                    task = pa.repeat(number.column(0)[0], rows.num_rows)
                    columns = [task, *(getattr(at, name) for name in _POSITION)]
                    yield pa.RecordBatch.from_arrays(columns, names=["task", *_POSITION])


@dataclass(frozen=True)
class PartTask:
    """Handles a part, and is not tried again once its worker died.

    Attributes:
        read: reads the whole task.
        handle: handles the part.
        tries: how often it may be started.
        failed: gets what was raised: a failure must not look like a death.
        attempt_number: says how often Spark has started the task before.
    """

    read: ArrowFunction
    handle: ArrowFunction
    tries: int
    failed: Callable[[list[str]], None]
    attempt_number: Callable[[], int] = of_this_task

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the outcome rows of the part."""
        if self.attempt_number() >= self.tries:
            raise WorkerDiedError(DIED_BEFORE)
        try:
            yield from self.handle(self.read(numbers))
        except Exception as error:  # noqa: BLE001 - it is raised on the driver
            self.failed([f"{type(error).__name__}: {error}"])


class PartedBatch:
    """One batch.

    Args:
        spark: The session.
        handle: Handles the batch's messages.
        blamed: Messages that were found before the driver was started again.
        blame: Called with all that are found whenever there is one more.
        is_given_up: Says whether a stop gave the batch up.
    """

    def __init__(
        self,
        spark: SparkSession,
        handle: OutcomeTask,
        blamed: Iterable[Attempt],
        blame: Callable[[Collection[Attempt]], None],
        is_given_up: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._handle = handle
        self._blamed = set(blamed)
        self._blame = blame
        self._is_given_up = is_given_up

    def outcomes(self, parts: Sequence[BatchPart]) -> pa.Table:
        """Handles all messages of the batch's parts; returns their rows of `deliveries`."""
        made: list[pa.Table] = []
        for part in parts:
            for number, messages in self._roll_call(part).items():
                made += self._handled(part, number, messages)
        nothing = DELIVERIES.arrow_schema.empty_table()
        return pa.concat_tables([nothing, *(rows.cast(nothing.schema) for rows in made if rows.num_rows)])

    def _roll_call(self, part: BatchPart) -> dict[int, list[Attempt]]:
        task = RollCall(part.read, self._handle.group)
        found: dict[int, list[Attempt]] = {}
        for batch in per_bin(self._spark, part.tasks, task, _ROLL).toArrow().to_batches():
            columns = (column.to_pylist() for column in batch.columns)
            for number, *attempt in zip(*columns, strict=True):
                found.setdefault(number, []).append(tuple(attempt))
        return found

    def _handled(self, part: BatchPart, number: int, messages: Sequence[Attempt]) -> list[pa.Table]:
        made: list[pa.Table] = []
        before: set[Attempt] = set()
        coming_again: set[Attempt] = set()
        left = deque(cut_at(messages, self._blamed))
        while left:
            some = left.popleft()
            died = some[0] in self._blamed
            chosen = TaskPart(frozenset(some), died=died)
            if self._handle.lanes is not None:
                chosen = replace(chosen, before=frozenset(before), coming_again=frozenset(coming_again))
            rows = self._try(part, number, chosen)
            if rows is None and len(some) > 1:
                middle = len(some) // 2
                left.extendleft([some[middle:], some[:middle]])
            elif rows is None:
                self._blamed.add(some[0])
                self._blame(self._blamed)
                left.appendleft(some)
            else:
                made.append(rows)
                before.update(some)
                coming_again.update(_coming_again(rows))
        return made

    def _try(self, part: BatchPart, number: int, messages: TaskPart) -> pa.Table | None:
        """The outcome rows of some messages; None when their worker died."""
        if self._is_given_up():
            raise from_code("SYSTEM_ERROR", "the batch is given up")
        failed = self._spark.sparkContext.accumulator([], _Texts())
        tries = 1 if len(messages.messages) > 1 else _TRIES_ALONE
        task = PartTask(part.read, replace(self._handle, part=messages), tries, failed.add)
        one = self._spark.range(number, number + 1, 1, 1)
        try:
            rows = map_in_arrow(one, task, DELIVERIES.ddl).toArrow()
        except Exception as error:
            if messages.died or not is_worker_death(error):
                raise
            return None
        if failed.value:
            raise from_code("SYSTEM_ERROR", failed.value[0])
        return rows


def cut_at(messages: Sequence[Attempt], alone: Collection[Attempt]) -> list[Sequence[Attempt]]:
    """Cuts messages, in their order, so that some stand alone."""
    pieces: list[list[Attempt]] = []
    behind_one = True
    for message in messages:
        if behind_one or message in alone:
            pieces.append([])
        pieces[-1].append(message)
        behind_one = message in alone
    return list(pieces)


def _coming_again(rows: pa.Table) -> set[Attempt]:
    said = rows.column("verdict").to_pylist()
    keys = zip(*(rows.column(name).to_pylist() for name in _POSITION), strict=True)
    return {key for key, verdict in zip(keys, said, strict=True) if verdict in (RETRY, PARKED)}
