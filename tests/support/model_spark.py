"""As much of a Spark session as a group job uses, in plain Python: frames that are lazy, and micro-batches.

Owns frames of Arrow batches whose tasks run when somebody writes them, and the protocol of a query with
foreachBatch: a batch is planned in the offset log, run, and done with its entry in the commit log; one that
was planned and is not done is run again, over the same range.

A task that is to be repeated runs twice, as under Spark when its first try is lost; what the first made is
thrown away.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.runtime.checkpoint import StreamCheckpoint
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.source import batch_plan
from tests.support.model_ledger import ModelLedger

_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
_META = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'

Batches = Callable[[], Iterator[pa.RecordBatch]]


class ModelSession:
    """A session.

    Args:
        ledger: What its SQL is about.
        cores: How many tasks run at a time.
    """

    def __init__(self, ledger: ModelLedger, cores: int = 2) -> None:
        self.ledger = ledger
        self.sparkContext = ModelContext(cores)
        self.conf = _Conf()
        self.started: ModelQuery | None = None

    def newSession(self) -> ModelSession:
        other = ModelSession(self.ledger)
        other.sparkContext = self.sparkContext
        return other

    def range(self, start: int, end: int, step: int, partitions: int) -> ModelFrame:
        assert (start, step, partitions) == (0, 1, end), "a task has one number"
        numbers = [pa.RecordBatch.from_pydict({"id": pa.array([n], pa.int64())}) for n in range(end)]
        return ModelFrame(self, [partial(iter, [number]) for number in numbers])

    def createDataFrame(self, rows: Any, schema: Any = None) -> ModelFrame:
        table = rows if isinstance(rows, pa.Table) else pa.table({})
        assert isinstance(rows, pa.Table) or not rows, "no frame of rows is made"
        return ModelFrame(self, [lambda: iter(table.to_batches())])

    def sql(self, text: str) -> _Answer:
        return _Answer(self.ledger.sql(text))

    @property
    def readStream(self) -> _StreamBuilder:
        return _StreamBuilder(self)


class ModelContext:
    """What sessions have in common.

    Attributes:
        repeat_tasks: So many tasks from now on run twice.
        master: Not of one machine.
    """

    master = "model"

    def __init__(self, cores: int) -> None:
        self.defaultParallelism = cores
        self.properties: dict[str, str] = {}
        self.repeat_tasks = 0

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def accumulator(self, value: Any, param: Any) -> _Sum:
        return _Sum(value, param)


class ModelFrame:
    """Rows that are made when they are asked for, partition by partition."""

    def __init__(self, session: ModelSession, partitions: list[Batches]) -> None:
        self.sparkSession = session
        self.partitions = partitions

    def mapInArrow(self, function: Callable[[Iterator[pa.RecordBatch]], Any], schema: str) -> ModelFrame:
        def mapped(batches: Batches) -> Iterator[pa.RecordBatch]:
            made: Iterator[pa.RecordBatch] = function(batches())
            return made

        return ModelFrame(self.sparkSession, [partial(mapped, each) for each in self.partitions])

    def unionAll(self, other: ModelFrame) -> ModelFrame:
        return ModelFrame(self.sparkSession, [*self.partitions, *other.partitions])

    def select(self, *names: str) -> ModelFrame:
        def selected(batches: Batches) -> Iterator[pa.RecordBatch]:
            return (batch.select(names) for batch in batches())

        return ModelFrame(self.sparkSession, [partial(selected, each) for each in self.partitions])

    @property
    def write(self) -> _Writer:
        return _Writer(self)

    def rows(self) -> pa.Table:
        """Runs the tasks."""
        context = self.sparkSession.sparkContext
        made = []
        for partition in self.partitions:
            if context.repeat_tasks:
                context.repeat_tasks -= 1
                list(partition())
            made.append(list(partition()))
        batches = list(chain.from_iterable(made))
        return pa.Table.from_batches(batches) if batches else pa.table({})


class ModelQuery:
    """A query with foreachBatch over the queues of one broker."""

    def __init__(
        self, session: ModelSession, options: Mapping[str, str], run: Callable[[Any, int], None]
    ) -> None:
        self._properties = session.sparkContext.properties
        self._directory = Path(options["checkpointLocation"])
        self._checkpoint = StreamCheckpoint(self._directory)
        self._plan_file = Path(options["planFile"])
        self._begin = {
            MessageQueue(topic, "b", int(key.rpartition("/")[2])): at
            for topic, keys in json.loads(options["startingOffsets"]).items()
            for key, at in keys.items()
        }
        self._run = run
        for log in ("offsets", "commits"):
            (self._directory / log).mkdir(parents=True, exist_ok=True)
        self._id_file = self._directory / "metadata"
        if not self._id_file.exists():
            self._id_file.write_text(json.dumps({"id": str(uuid.uuid4())}))

    def run_batch(
        self,
        there: Mapping[MessageQueue, int],
        most: int,
        *,
        planned: Callable[[], None] = lambda: None,
        ran: Callable[[], None] = lambda: None,
    ) -> bool:
        """Runs the next batch, if there is anything in it.

        Args:
            there: How far each queue is by now.
            most: Messages of each queue in it.
            planned: Called when its entry in the offset log is written.
            ran: Called before its entry in the commit log is.
        """
        number = self._checkpoint.last_planned()
        if number == self._checkpoint.last_committed():
            begin = self._end_of(number)
            end = {queue: min(at, begin.get(queue, 0) + most) for queue, at in there.items()}
            if end == begin:
                return False
            number += 1
            text = json.dumps(_offsets(end).to_json())
            (self._directory / "offsets" / str(number)).write_text(f"v1\n{_META}\n{text}\n")
        planned()
        ends = (self._end_of(number - 1), self._end_of(number))
        first, behind = map(_offsets, ends)
        batch_plan.write(self._plan_file, first, behind)
        self._properties["sql.streaming.queryId"] = json.loads(self._id_file.read_text())["id"]
        self._run(None, number)
        ran()
        (self._directory / "commits" / str(number)).write_text("v1\n{}\n")
        return True

    def _end_of(self, number: int) -> dict[MessageQueue, int]:
        if number < 0:
            return self._begin
        text = (self._directory / "offsets" / str(number)).read_text().splitlines()[2]
        return ClusterOffsets.from_json(json.loads(text)).queues


def _offsets(queues: Mapping[MessageQueue, int]) -> Offsets:
    return Offsets(1, {queue.topic: f"id of {queue.topic}" for queue in queues}, queues)


class _Conf:
    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def set(self, name: str, value: str) -> None:
        self._values[name] = value

    def get(self, name: str, default: str | None) -> str | None:
        return self._values.get(name, default)

    def unset(self, name: str) -> None:
        self._values.pop(name, None)


class _Answer:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def toArrow(self) -> pa.Table:
        return self._table


class _Sum:
    def __init__(self, value: Any, param: Any) -> None:
        self.value = value
        self._param = param

    def add(self, term: Any) -> None:
        self.value = self._param.addInPlace(self.value, term)


class _Writer:
    def __init__(self, frame: ModelFrame) -> None:
        self._frame = frame
        self._options: dict[str, str] = {}

    def format(self, name: str) -> _Writer:
        assert name == "delta"
        return self

    def mode(self, name: str) -> _Writer:
        assert name == "append"
        return self

    def option(self, name: str, value: str) -> _Writer:
        self._options[name] = value
        return self

    def commit_to(self, ledger: ModelLedger, table: Any) -> None:
        app_id, version = self._options["txnAppId"], int(self._options["txnVersion"])
        if ledger.commit(self._frame.rows, table, app_id, version):
            self._frame.sparkSession.conf.set(_LAST_COMMIT, "1")


class _StreamBuilder:
    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self._options: dict[str, str] = {}
        self._function: Callable[[Any, int], None] | None = None

    def option(self, name: str, value: str) -> _StreamBuilder:
        self._options[name] = value
        return self

    def foreachBatch(self, function: Callable[[Any, int], None]) -> _StreamBuilder:
        self._function = function
        return self

    def start(self) -> ModelQuery:
        assert self._function is not None
        return ModelQuery(self._session, self._options, self._function)

    def load(self) -> _StreamBuilder:
        return self

    @property
    def writeStream(self) -> _StreamBuilder:
        return self

    def _as_it_is(self, *args: Any, **kwargs: Any) -> _StreamBuilder:
        return self

    format = schema = queryName = trigger = _as_it_is
