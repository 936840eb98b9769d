"""A batch and the calls of its messages that go on when their tasks have ended.

Owns which messages of a batch have such a call, and what is said of them.

Processes: made on the driver, pickled to Spark's Python workers of the same machine.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from jobs.group.orderly.lane import Lane
from jobs.handler.call_order import CallOrder
from jobs.handler.handler_loop import HandlerLoop
from jobs.handler.long_call import CallFile, Leave, LongCall, long_calls_here
from jobs.handler.results import CallMade
from jobs.handler.verdicts import GOES_ON
from jobs.redelivery.original_position import Positions
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import ConsumeSettings

_LONGEST_WAIT_MS = 30_000
"""Spark ends workers when none has had anything to do for a minute."""
_LONGEST_TRIGGER_S = 15.0
_DOUBLINGS = 5
_OF_LANE = "-"
LanesOf = Callable[[], Sequence[Lane]]
_WORKERS_STAY = ("spark.python.worker.reuse", "spark.python.use.daemon")
_MOST_IDLE = "spark.python.factory.idleWorkerMaxPoolSize"


@dataclass(frozen=True)
class LongCalls:
    """The calls of one group that go on.

    Attributes:
        directory: where their files are: the group's own, on this machine. It need not be there.
    """

    directory: Path

    @classmethod
    def of_group(cls, spark: SparkSession, settings: ConsumeSettings) -> LongCalls | None:
        """Those of a group, for as long as its Spark application lasts.

        None where each call is waited for: the next attempt may be on another machine, or nothing comes
        again, or Spark's workers end with their tasks.
        """
        context = spark.sparkContext
        if not (context.master or "").startswith("local"):
            return None
        if settings.mode == "broadcast" or _seconds(settings.trigger) > _LONGEST_TRIGGER_S:
            return None
        conf = context.getConf()
        said = [(conf.get(name) or "").strip().lower() for name in _WORKERS_STAY]
        if "false" in said or conf.get(_MOST_IDLE):
            return None
        name = _digest(str(settings.checkpoint_of("group")))
        return cls(Path(SparkFiles.getRootDirectory()) / f"lakemq-calls-{name}")

    def found(
        self,
        positions: Positions,
        put_off: pa.Array,
        policy: RetryPolicy,
        must_wait: Callable[[], Sequence[bool]],
        order: CallOrder | None,
        lanes: LanesOf,
    ) -> tuple[dict[int, CallMade], CallOrder | None]:
        """What is known of calls that went on.

        Args:
            positions: of the messages of a batch.
            put_off: how often each of them was put off before.
            policy: the delays that there are.
            must_wait: of each, whether it cannot be put off once more: its call is waited for.
            order: which calls follow each other; None: none does.
            lanes: the lane of each, where there is an order.

        Returns:
            What the calls came to, or that they go on, by the row of their message; and the order of the
            calls that are left to make. What a call behind others came to is not asked for: its lane ends
            before it. While a call of a lane goes on, whether its message is here or not, it waits.
        """
        try:
            there = {file.name for file in self.directory.iterdir() if not file.suffix}
        except FileNotFoundError:
            return {}, order
        if not there:
            return {}, order
        names = _names(positions, None if order is None else lanes())
        known = [row for row, name in enumerate(names) if name in there]
        asked = known if order is None else sorted(set(known).intersection(order.heads))
        made: dict[int, CallMade] = {}
        for row in asked:
            file, attempt = CallFile(self.directory / names[row]), positions.attempt[row].as_py()
            came = file.look(attempt, must_wait=must_wait()[row])
            if came == "goes on":
                level = _level(policy, put_off[row].as_py())
                made[row] = None, time.time_ns() // 1_000, replace(GOES_ON, delay_level=level)
            elif came is not None:
                made[row] = came
        if order is None:
            return made, None
        order = order.left({row: outcome for row, (_, _, outcome) in made.items()})
        others = there.difference(names[row] for row in asked)
        waiting = [
            lane[0]
            for lane in order.lanes
            if self._goes_on(names[lane[0]], others, until_over=must_wait()[lane[0]])
        ]
        return made, order.without(waiting).before(set(known).difference(asked))

    def _goes_on(self, name: str, others: Collection[str], *, until_over: bool) -> bool:
        """Whether one of other calls goes on that is of the same lane as the one with a name."""
        lane = name.partition(_OF_LANE)[0]
        of_lane = [each for each in others if each.startswith(lane + _OF_LANE)]
        return any(CallFile(self.directory / each).await_end(until_over=until_over) for each in of_lane)

    def leaving(
        self,
        positions: Positions,
        policy: RetryPolicy,
        timeout_s: float,
        cannot_return: Callable[[], Sequence[bool]],
        lanes: LanesOf | None,
    ) -> Leave | None:
        """Has calls go on, but those whose message could not be put off.

        Args:
            positions: of the messages of a batch.
            policy: the delays that there are.
            timeout_s: how long a call may take.
            cannot_return: of each, whether it could not be put off.
            lanes: the lane of each; None: there is no order.

        Returns:
            None where no delay is short enough.
        """
        if min(policy.level_ms) > _LONGEST_WAIT_MS:
            return None
        return _Leaving(self.directory, positions, timeout_s, cannot_return, lanes)


@dataclass(frozen=True)
class _Leaving:
    directory: Path
    positions: Positions
    timeout_s: float
    cannot_return: Callable[[], Sequence[bool]]
    lanes: LanesOf | None

    @property
    def under_way(self) -> int:
        return long_calls_here(self.directory)

    def __call__(
        self, batch: pa.RecordBatch, row: int, started: int, since: float, loop: HandlerLoop | None
    ) -> LongCall | None:
        if self.cannot_return()[row]:
            return None
        only = pa.array([row])
        (name,) = _names(self.positions.take(only), None if self.lanes is None else [self.lanes()[row]])
        return CallFile(self.directory / name).leave(
            self.positions.attempt[row].as_py(),
            started,
            since,
            self.timeout_s,
            loop,
            batch.take(only),
            batch.nbytes,
        )

    def of(self, rows: Sequence[int]) -> Leave:
        positions = self.positions.take(pa.array(rows, pa.int64()))
        cannot_return = partial(_said, [self.cannot_return()[row] for row in rows])
        lanes = None if self.lanes is None else partial(_said, [self.lanes()[row] for row in rows])
        return replace(self, positions=positions, cannot_return=cannot_return, lanes=lanes)


def _said(known: Any) -> Any:
    return known


def _seconds(interval: str) -> float:
    """Of a trigger as Spark writes it; any number of those that are written otherwise."""
    found = re.fullmatch(r"\s*(\d+)\s+(millisecond|second)s?\s*", interval.lower())
    return math.inf if found is None else int(found[1]) * {"millisecond": 0.001, "second": 1.0}[found[2]]


def _level(policy: RetryPolicy, put_off: int) -> int:
    """The delay until it is asked again: longer each time, never so long that Spark ends the worker."""
    wanted = 1_000 << min(put_off, _DOUBLINGS)
    short = [ms for ms in policy.level_ms if ms <= _LONGEST_WAIT_MS]
    return policy.level_ms.index(min((ms for ms in short if ms >= wanted), default=max(short))) + 1


def _names(positions: Positions, lanes: Sequence[Lane] | None) -> list[str]:
    """Of the files of some messages' calls; they begin with the lane, where there is one."""
    columns = (positions.topic, positions.broker_name, positions.queue_id, positions.queue_offset)
    names = [_digest(*at) for at in zip(*(column.to_pylist() for column in columns), strict=True)]
    if lanes is None:
        return names
    return [f"{_digest(*lane)}{_OF_LANE}{name}" for lane, name in zip(lanes, names, strict=True)]


def _digest(*parts: str | int | None) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
