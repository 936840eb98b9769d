"""One process of a modelled group, where it ends, and the streams behind the ledger's rows.

Owns the real job over a model of Spark, and what of a batch's run the model remembers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY
from delta_tables.table import Table
from jobs.group.fence import GroupFence
from jobs.group.job import GroupJob
from jobs.group.slice_tasks import source_schema
from jobs.handler.invocation import HandlerHost
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.runtime.batch_gate import BatchGate
from jobs.settings import ConsumeSettings
from tests.support.model_broker import ModelBroker, ModelClient, ModelLease, ModelReader, ModelSliceReader
from tests.support.model_ledger import ModelLedger
from tests.support.model_spark import ModelSession

GROUP = "g"
RETRIES, DEAD_TOPIC, SENT = "%RETRY%g", "%DLQ%g", "out"
READ = ("t", RETRIES)

Position = tuple[Any, ...]
"""topic, broker_name, queue_id, queue_offset"""
Attempt = tuple[Any, ...]
"""A position and the number of the attempt."""
Row = dict[str, Any]


def attempt_of(row: Row) -> Attempt:
    """The attempt a row of `deliveries` is of."""
    return tuple(row[name] for name in DELIVERY_KEY[1:])


class KilledError(BaseException):
    """The driver is gone."""


class FailedError(Exception):
    """A step of the driver failed."""


class ConflictError(Exception):
    """A commit that may be repeated, as Delta says it."""

    def __init__(self, where: str) -> None:
        super().__init__(f"MetadataChangedException {where}")


@dataclass(frozen=True)
class Fault:
    """Where a batch ends, and how.

    Attributes:
        at: `planned`, `read` (of its second piece), `ran`, or `before` or `after` a commit.
        table: of the commit.
        error: what ends it.
    """

    at: str
    table: str = ""
    error: type[BaseException] = KilledError

    def strike(self, at: str, table: str = "") -> None:
        """Ends the batch where this is the place."""
        if (at, table) == (self.at, self.table):
            raise self.error(f"{at} {table}")


NO_FAULT = Fault("never")
FAULTS = [
    Fault(at, table.name, error)
    for at in ("before", "after")
    for table in (DELIVERIES, CONSUMER_OFFSETS)
    for error in (KilledError, FailedError)
] + [Fault("planned"), Fault("read"), Fault("ran"), Fault("before", DELIVERIES.name, ConflictError)]


@dataclass
class Run:
    """One time that a batch's messages are handled.

    Attributes:
        said: what the handler said of each attempt, call by call.
        skipped: the messages that an operator had given up when it began.
        repeats: how many of its tasks run twice.
    """

    skipped: frozenset[Position]
    repeats: int
    said: dict[Attempt, list[str]] = field(default_factory=lambda: defaultdict(list))


_readings = count()


@dataclass(frozen=True)
class Surroundings:
    """What a driver finds: the rest of the model.

    Attributes:
        handler: what settings take for a handler.
        committed: called when a run's rows are in the ledger.
    """

    broker: ModelBroker
    ledger: ModelLedger
    policy: RetryPolicy
    handler: Any
    cores: int
    runs: list[Run]
    committed: Callable[[Run], None]


def quick_clock() -> float:
    """A clock that nothing takes long by: what a busy machine takes would decide how large a batch is."""
    return next(_readings) * 1e-6


class Driver:
    """One process of the group, which takes it when it begins."""

    def __init__(self, around: Surroundings, checkpoint: Path) -> None:
        self.lease = ModelLease(around.broker)
        self.session = ModelSession(around.ledger, around.cores)
        self.checked: Callable[[], None] = lambda: None
        self._around = around
        self._reader = ModelReader(around.broker, source_schema())
        settings = ConsumeSettings(
            *(GROUP, ("t",), around.handler, around.ledger, checkpoint),
            endpoint=around.broker.endpoint,
            start="earliest",
            send_to=(SENT,),
            host=HandlerHost(concurrency=1),
        )
        reader = ModelSliceReader(None, "", source_schema(), "*", fail_on_data_loss=True, reader=self._reader)
        self.job = GroupJob(
            cast(Any, self.session),
            settings,
            around.policy,
            cast(Any, ModelClient(around.broker)),
            BatchGate(),
            cast(Any, self.lease),
            reader=reader,
            before_ledger_commit=lambda batch: self.checked(),
            clock=quick_clock,
        )
        self._query = cast(Any, self.job.start())
        dead = cast(Any, self.session.newSession())
        self.dead_fence = GroupFence(dead, around.ledger, DEAD_LETTERS, GROUP, cast(Any, self.lease))

    def run(
        self,
        most: int,
        run: Run,
        fault: Fault = NO_FAULT,
        beside: Callable[[str, str], None] = lambda moment, table: None,
    ) -> bool:
        """Runs the next batch; returns whether there was one.

        Args:
            most: messages of each queue in it.
            run: gets what the handler says.
            fault: where it ends.
            beside: called before and after each commit, as what others do meanwhile.
        """
        reads = iter(range(1_000))
        struck: list[None] = []

        def on_read() -> None:
            if next(reads):
                fault.strike("read")

        def around(moment: str, table: Table) -> None:
            if (moment, table.name) == ("after", DELIVERIES.name):
                self._around.committed(run)
            beside(moment, table.name)
            if not struck:
                struck.extend([None] * ((moment, table.name) == (fault.at, fault.table)))
                fault.strike(moment, table.name)

        ledger, broker = self._around.ledger, self._around.broker
        before, ledger.around = ledger.around, around
        self._reader.fail = on_read
        self.session.sparkContext.repeat_tasks = run.repeats
        self._around.runs.append(run)
        try:
            return bool(
                self._query.run_batch(
                    broker.ends(READ),
                    most,
                    planned=lambda: fault.strike("planned"),
                    ran=lambda: fault.strike("ran"),
                )
            )
        finally:
            self._around.runs.pop()
            ledger.around = before


class RowStream:
    """A stream over the rows of `deliveries`: a batch that is not done comes again, under its keys."""

    def __init__(self, ledger: ModelLedger) -> None:
        self._ledger = ledger
        self.lives = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Its checkpoint is lost: it begins before the oldest row that is not worked off."""
        self.lives += 1
        self.batch = self._done = 0
        self._planned: int | None = None

    @property
    def name(self) -> str:
        """What the keys of the batch begin with."""
        return f"{self.lives}.{self.batch}"

    def rows(self) -> list[Row]:
        """The rows of the next batch, the same until it is done."""
        commits = self._ledger.commits[DELIVERIES.name]
        if self._planned is None:
            self._planned = len(commits)
        return sorted((row for rows in commits[self._done : self._planned] for row in rows), key=attempt_of)

    def end_batch(self) -> None:
        """The batch is done."""
        assert self._planned is not None
        self._done, self._planned = self._planned, None
        self.batch += 1

    @property
    def has_all(self) -> bool:
        """Whether it is at the ledger's end."""
        return self._planned is None and self._done == len(self._ledger.commits[DELIVERIES.name])
