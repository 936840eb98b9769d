"""What holds for the outcomes of every batch of a group.

Owns which of it a batch's tasks are given.

Processes: the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.frames.decided_verdicts import DecidedVerdicts
from jobs.group.batch_size import LONGEST_BATCH, Handled
from jobs.group.carried import Carriers
from jobs.group.long_calls import LongCalls
from jobs.group.named_batch import NamedBatch
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.outcomes import OutcomeTask
from jobs.group.skips.skipped_rows import Skips
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import ConsumeSettings
from jobs.tracing.call_spans import TracedBatch


@dataclass(frozen=True)
class OutcomeRules:
    """One group's rules.

    Attributes:
        settings: the group's settings.
        policy: when failed messages come again.
        may_carry: the messages and rows that verdicts may carry.
        long_calls: the calls that went on when their tasks had ended; None: each is waited for.
        clock: of the tasks, see `OutcomeTask`; travels to the executors.
    """

    settings: ConsumeSettings
    policy: RetryPolicy
    may_carry: Carriers
    long_calls: LongCalls | None
    clock: Callable[[], float]

    def task(
        self,
        batch: NamedBatch,
        handler: HandlerTarget | DecidedVerdicts,
        host: HandlerHost,
        handled: Callable[[Handled], None],
        lanes: LaneRules | None,
        skips: Skips,
    ) -> OutcomeTask:
        """The function of one batch; see `OutcomeTask` for what it is given."""
        settings = self.settings
        return OutcomeTask(
            settings.group,
            handler,
            self.policy,
            settings.mode,
            batch.query_id,
            batch.batch_id,
            host,
            handled,
            self.may_carry,
            lanes,
            skips,
            TracedBatch.here(settings.group),
            # What is put off would be left to a later run, and this one is asked for all that is there.
            limit_s=None if settings.available_now else LONGEST_BATCH * settings.batch_time_s,
            long_calls=self.long_calls,
            clock=self.clock,
        )
