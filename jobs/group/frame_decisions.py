"""A group's function of DataFrames decides about a batch, before the tasks of its outcomes.

Owns the session in which it does, and the time that is taken down for it.

Threads: the group job's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.frames.evaluation import FrameEvaluation
from jobs.frames.frame_handler import FrameHandler
from jobs.group.batch_parts import BatchPart, frame_of
from jobs.group.batch_size import Handled, HandlingTime
from jobs.group.loss_record import LossRecord
from jobs.group.message_frame import MessageTask, message_schema, task_schema
from jobs.group.skips.skipped_rows import Skips
from jobs.redelivery.retry_policy import RetryPolicy


class FrameDecisions:
    """One group's function.

    Args:
        users: the user's session, where their tables, views and functions are.
        group: the group.
        handler: the function; it is looked at now, without an action of Spark's.
        policy: when failed messages come again.
        is_given_up: says whether the batch under way is.
    """

    def __init__(
        self,
        users: SparkSession,
        group: str,
        handler: FrameHandler,
        policy: RetryPolicy,
        is_given_up: Callable[[], bool],
    ) -> None:
        handler.check(users.createDataFrame([], message_schema()))
        self._users = users
        self._group = group
        self._evaluation = FrameEvaluation(handler, policy, is_given_up)

    def decide(
        self, parts: Sequence[BatchPart], skips: Skips, time_taken: HandlingTime, lost: LossRecord | None
    ) -> DecidedVerdicts:
        """Evaluates the function; the tasks of the outcomes read the messages once more."""
        began = time.monotonic()
        messages = frame_of(self._users, parts, MessageTask(self._group, skips), task_schema())
        decided = self._evaluation.decide(messages)
        cores = self._users.sparkContext.defaultParallelism
        time_taken(Handled(0, (time.monotonic() - began) * cores))
        if lost is not None:
            lost.begin_again()  # those of the second reading count
        return decided
