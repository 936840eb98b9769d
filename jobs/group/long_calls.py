"""A batch and the calls of its messages that go on when their tasks have ended.

Owns which messages of a batch have such a call, and what is said of them.

Processes: made on the driver, pickled to Spark's Python workers of the same machine.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from jobs.handler.long_call import CallFile, Leave, LongCall
from jobs.handler.results import CallMade
from jobs.handler.verdicts import GOES_ON
from jobs.redelivery.original_position import Positions
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import ConsumeSettings

_LONGEST_WAIT_MS = 30_000
"""Spark ends workers when none has had anything to do for a minute."""
_DOUBLINGS = 5
_WORKERS_STAY = ("spark.python.worker.reuse", "spark.python.use.daemon")


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
        again, or not in this run, or in its lane's order; or Spark's workers end with their tasks.
        """
        context = spark.sparkContext
        if not (context.master or "").startswith("local"):
            return None
        if settings.mode != "concurrent" or settings.available_now:
            return None
        conf = context.getConf()
        if any(conf.get(name, "true") == "false" for name in _WORKERS_STAY):
            return None
        name = _digest(str(settings.checkpoint_of("group")))
        return cls(Path(SparkFiles.getRootDirectory()) / f"lakemq-calls-{name}")

    def found(
        self,
        positions: Positions,
        put_off: pa.Array,
        policy: RetryPolicy,
        cannot_return: Callable[[], Sequence[bool]],
    ) -> dict[int, CallMade]:
        """What is known of calls that went on.

        Args:
            positions: of the messages of a batch.
            put_off: how often each of them was put off before.
            policy: the delays that there are.
            cannot_return: of each, whether it cannot be put off once more: its call is waited for.

        Returns:
            What the calls came to, or that they go on, by the row of their message.
        """
        try:
            there = {file.name for file in self.directory.iterdir()}
        except FileNotFoundError:
            return {}
        made: dict[int, CallMade] = {}
        for row, name in enumerate(_names(positions)) if there else ():
            if name in there:
                attempt = positions.attempt[row].as_py()
                came = CallFile(self.directory / name).look(attempt, must_wait=cannot_return()[row])
                if came == "goes on":
                    level = _level(policy, put_off[row].as_py())
                    made[row] = None, time.time_ns() // 1_000, replace(GOES_ON, delay_level=level)
                elif came is not None:
                    made[row] = came
        return made

    def leaving(
        self,
        messages: pa.RecordBatch,
        positions: Positions,
        policy: RetryPolicy,
        timeout_s: float,
        cannot_return: Callable[[], Sequence[bool]],
    ) -> Leave | None:
        """Has calls go on, but those whose message could not be put off.

        Args:
            messages: as the handler sees them.
            positions: theirs.
            policy: the delays that there are.
            timeout_s: how long a call may take.
            cannot_return: of each, whether it could not be put off.

        Returns:
            None where no delay is short enough.
        """
        if min(policy.level_ms) > _LONGEST_WAIT_MS:
            return None

        def leave(row: int, started: int, since: float) -> LongCall | None:
            if cannot_return()[row]:
                return None
            (name,) = _names(positions.take(pa.array([row])))
            file = CallFile(self.directory / name)
            return file.leave(
                positions.attempt[row].as_py(), started, since, timeout_s, messages.slice(row, 1)
            )

        return leave


def _level(policy: RetryPolicy, put_off: int) -> int:
    """The delay until it is asked again: longer each time, never so long that Spark ends the worker."""
    wanted = 1_000 << min(put_off, _DOUBLINGS)
    short = [ms for ms in policy.level_ms if ms <= _LONGEST_WAIT_MS]
    return policy.level_ms.index(min((ms for ms in short if ms >= wanted), default=max(short))) + 1


def _names(positions: Positions) -> list[str]:
    columns = (positions.topic, positions.broker_name, positions.queue_id, positions.queue_offset)
    return [_digest(*at) for at in zip(*(column.to_pylist() for column in columns), strict=True)]


def _digest(*parts: str | int) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
