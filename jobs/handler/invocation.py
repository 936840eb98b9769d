"""Having a batch of messages handled, on this worker or in a process beside it.

Owns how many calls are made at a time, how long one may take, and where.

Invariants: one bad message never fails the batch, and a batch always yields exactly one verdict per row.

Processes: executors.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from jobs.handler.batch_calls import Before, Made, call_batch, handle_batch
from jobs.handler.call_order import CallOrder
from jobs.handler.deadline import NEVER, Deadline
from jobs.handler.isolated_handler import isolated
from jobs.handler.loader import HandlerTarget
from jobs.handler.long_call import Leave
from jobs.handler.narrowing import Call
from jobs.handler.opened_handler import OpenedHandler, opened
from jobs.handler.results import HandlerResults, of_calls
from jobs.handler.row_calls import RowCalls
from jobs.handler.slow_calls import SlowCalls
from jobs.handler.verdicts import PUT_OFF
from jobs.handler.watchdog import Watchdog
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.call_spans import NOT_TRACED, TracedBatch

Isolation = Literal["thread", "process"]

CONCURRENCY = 20
"""Calls at a time in a worker, as RocketMQ's consumeThreadMin."""
CONSUME_TIMEOUT_S = 15 * 60.0


@dataclass(frozen=True)
class HandlerHost:
    """Where and how a handler is called.

    Attributes:
        concurrency: calls at a time in each worker, for handlers of single messages.
        timeout_s: how long one call may take.
        isolation: `thread` calls it in Spark's worker, `process` in a process beside it, which can be killed
            and can die alone.
        memory: bytes that such a process may have in memory; None: any.
    """

    concurrency: int = CONCURRENCY
    timeout_s: float = CONSUME_TIMEOUT_S
    isolation: Isolation = "thread"
    memory: int | None = None


DEFAULT_HOST = HandlerHost()


def invoke(
    target: HandlerTarget,
    batch: pa.RecordBatch,
    policy: RetryPolicy,
    before: Before | None,
    host: HandlerHost,
    order: CallOrder | None = None,
    traced: TracedBatch = NOT_TRACED,
    deadline: Deadline = NEVER,
    leave: Leave | None = None,
) -> HandlerResults:
    """Has a batch handled.

    Args:
        target: the user's handler.
        batch: messages as the handler sees them (original position, attempt).
        policy: for delays a verdict names.
        before: of the messages, for a vectorised handler.
        host: where and how it is called.
        order: which calls of a handler of single messages follow each other; None: none does.
        traced: what the spans of its calls say of the batch.
        deadline: from when on what has not begun is put off; of a vectorised handler, the whole batch.
        leave: has a call of a single message that is under way then go on.

    Returns:
        One verdict per row of the batch, in its order.
    """
    vectorised = target.load().vectorised
    if vectorised:
        before = before or Before.nothing(batch.num_rows)
        if deadline.passed:
            return of_calls(range(batch.num_rows), {}, PUT_OFF, time.time_ns() // 1_000)
        deadline.begin()
    if host.isolation == "thread":
        with Watchdog(host.timeout_s) as watch:  # open() may hang as well
            watch.begin(0)
            handler = opened(target)
            watch.end(0)
        return invoke_here(handler, batch, policy, before, host, order, traced, deadline, leave)
    process = isolated(target, policy, host.concurrency, host.timeout_s, host.memory)
    if vectorised and before is not None:
        return handle_batch(batch, lambda piece: process.call_batch(piece, traced), before)
    return process.call_rows(batch, order, traced, deadline, leave)


def invoke_here(
    handler: OpenedHandler,
    batch: pa.RecordBatch,
    policy: RetryPolicy,
    before: Before | None = None,
    host: HandlerHost = DEFAULT_HOST,
    order: CallOrder | None = None,
    traced: TracedBatch = NOT_TRACED,
    deadline: Deadline = NEVER,
    leave: Leave | None = None,
) -> HandlerResults:
    """Has a batch handled in this process; see `invoke`."""
    pieces: dict[int, pa.RecordBatch] = {}
    one = not handler.vectorised
    slow = SlowCalls(lambda call: batch.slice(call, 1) if one else pieces.get(call), host.timeout_s)
    with (
        Watchdog(host.timeout_s, grace_s=handler.grace_s, on_look=slow.look) as watch,
        traced.calls() as spans,
    ):
        if one:
            calls = RowCalls(
                handler,
                policy,
                host.concurrency,
                host.timeout_s,
                began=watch.begin,
                ended=lambda row, *_: watch.end(row),
                spans=spans,
                deadline=deadline,
                leave=leave,
            )
            return calls.run(batch, range(batch.num_rows), order)
        numbers = itertools.count()

        def call(piece: pa.RecordBatch) -> Call[Made]:
            number = next(numbers)
            pieces[number] = piece
            watch.begin(number)
            try:
                return call_batch(handler.call, piece, policy, spans)
            finally:
                watch.end(number)
                del pieces[number]

        return handle_batch(batch, call, before or Before.nothing(batch.num_rows))
