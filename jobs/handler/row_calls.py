"""Calls of a handler of single messages, several at a time.

Owns the threads, and the tasks of the handler's event loop, that make the calls.

Invariants: one outcome per row that is called; what a call raises is a failure of its own row only; one that
is not thread-safe runs on the task's own thread; none is begun when it is late, and none is under way when
`run` returns, but those that are left then: few, and longer under way than calls are by far.

Threads: up to `concurrency` for the length of one `run`, or of the calls that are left; they are daemons, so
that a call that never returns ends with its process. Coroutines run on their handler's loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa

from jobs.handler.call_order import CallOrder, Turns
from jobs.handler.deadline import NEVER, Deadline
from jobs.handler.handler_loop import HandlerLoop, HeldLoop
from jobs.handler.long_call import Leave, LongCall
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.results import CallMade, HandlerResults, of_calls
from jobs.handler.verdicts import GOES_ON, Outcome, failure, outcome_of, tell, timed_out
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.call_spans import NO_SPANS, CallSpans
from lakemq.handler import BatchColumns, DeliveredMessage, Verdict

# What one thread is done with in this time is not worth starting others for.
_ALONE_S = 0.002
TICK_S = 0.3
_ROUNDS = 100
"""So often in a row tasks that are cancelled before a call are begun anew."""
_MEASURED = 1_000
"""So many calls of a batch say how long one usually takes."""

Began = Callable[[int], None]
Ended = Callable[[int, int | None, int, Outcome | None], None]


class RowCalls:
    """Calls a handler once per message.

    Args:
        handler: The user's.
        policy: For delays a verdict names.
        concurrency: Calls at a time at most.
        timeout_s: How long a coroutine may take; a call on a thread cannot be ended here.
        began: Called with a row before its call, on the call's thread.
        ended: Called with a row, its start and end (epoch us) and outcome (None is ACK) after it; without a
            start where it goes on.
        spans: Of the calls.
        deadline: From when on no call is begun.
        leave: Has a call under way go on when the deadline has passed; None: each is waited for. Not where
            one call is made at a time.
        tick: Called every TICK_S from where the calls run, as long as they let it: on the event loop, or on a
            thread that needs the interpreter as they do.
    """

    def __init__(
        self,
        handler: OpenedHandler,
        policy: RetryPolicy,
        concurrency: int,
        timeout_s: float,
        *,
        began: Began = lambda row: None,
        ended: Ended = lambda row, started, finished, outcome: None,
        spans: CallSpans = NO_SPANS,
        deadline: Deadline = NEVER,
        leave: Leave | None = None,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self._handler = handler
        self._policy = policy
        self._concurrency = concurrency if handler.thread_safe else 1
        self._timeout_s = timeout_s
        self._began = began
        self._ended = ended
        self._spans = spans
        self._deadline = deadline
        self._leave = leave if self._concurrency > 1 else None
        self._under_way: dict[int, tuple[int, int, float]] = {}
        self._left: dict[int, LongCall] = {}
        self._all_stay = False
        self._tick = tick
        self._turns = Turns(CallOrder(()))
        self._outcomes: dict[int, CallMade] = {}
        self._batch: pa.RecordBatch | None = None
        self._over = SimpleQueue[int]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticks: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        self._is_orderly = False

    def run(
        self, batch: pa.RecordBatch, rows: Sequence[int], order: CallOrder | None = None
    ) -> HandlerResults:
        """Calls the handler with some rows of a batch; returns one verdict for each, in their order.

        Args:
            batch: The batch.
            rows: The rows.
            order: Which of them follow each other, and the outcome of those that are not called; None calls
                each when there is a thread for it.
        """
        order = order or CallOrder.at_once(rows)
        self._is_orderly = order.parks
        self._turns, self._outcomes, self._batch = Turns(order), {}, batch
        columns = BatchColumns(batch)
        callers = min(self._concurrency, len(order.lanes))
        if self._leave is not None:
            callers = min(callers, max(1, self._concurrency - self._leave.under_way))
        if self._handler.loop is not None:
            self._on_loop(self._handler.loop, columns, callers)
        else:
            with self._ticking():
                if callers <= 1 and self._leave is None:
                    self._work(columns, 0)
                else:
                    self._on_threads(columns, callers)
        if self._leave is not None:
            self._handler.usual.learn(self._took_us())
        return of_calls(rows, self._outcomes, order.otherwise, _now_us())

    def _on_threads(self, columns: BatchColumns, callers: int) -> None:
        try:
            self._begin_thread(columns, 0)
        except RuntimeError:  # the system has no more: all calls are made here
            self._work(columns, 0)
            return
        under_way = {0} - self._ended_callers(_ALONE_S)
        if self._turns:
            with suppress(RuntimeError):  # the system has no more: those that run make all calls
                for caller in range(1, callers):
                    self._begin_thread(columns, caller)
                    under_way.add(caller)
        self._wait(under_way)

    def _begin_thread(self, columns: BatchColumns, caller: int) -> None:
        def work() -> None:
            try:
                self._work(columns, caller)
            finally:
                self._over.put(caller)

        threading.Thread(target=work, name=f"handler-{caller}", daemon=True).start()

    def _wait(self, under_way: set[int], look: Callable[[], None] | None = None) -> None:
        """Waits for those that make calls, by their number, but not for calls that take long."""
        every = None if self._leave is None and look is None else TICK_S
        while under_way:
            over = self._ended_callers(every)
            under_way = under_way - over
            if not over:  # else others may be about to end
                under_way = under_way - self._leave_long_calls()
                if look is not None:
                    look()

    def _ended_callers(self, within_s: float | None) -> set[int]:
        """Who has ended, one at most; none where nobody does in time."""
        # No condition: a signal that closes the handler may come while this thread waits.
        try:
            return {self._over.get(timeout=within_s)}
        except Empty:
            return set()

    def _leave_long_calls(self) -> set[int]:
        """Has all calls under way go on, where that is what the task waits for; returns who makes them."""
        if self._leave is None or self._all_stay or not self._deadline.passed:
            return set()
        calls = self._under_way.copy()
        if len(calls) + self._leave.under_way > self._concurrency // 2:
            return set()
        assert self._deadline.limit_s is not None, "it has passed"
        long_s = self._handler.usual.long_s(self._took_us(), unknown_s=self._deadline.limit_s)
        now = time.monotonic()
        if any(now - since < long_s for _, _, since in calls.values()):
            return set()
        callers = set()
        assert self._batch is not None, "calls are under way"
        for row, (caller, started, since) in calls.items():
            left = self._leave(self._batch, row, started, since, self._handler.loop)
            if left is None:
                self._all_stay = True  # for one that is waited for, the task waits
                break
            self._left[row] = left
            # Whoever takes it out has the call's end.
            if self._under_way.pop(row, None) is None:
                del self._left[row]
                left.forget()
                continue
            self._ended(row, None, _now_us(), GOES_ON)
            self._outcomes[row] = None, _now_us(), GOES_ON
            callers.add(caller)
        return callers

    def _took_us(self) -> Iterator[int]:
        some = islice(self._outcomes.copy().values(), _MEASURED)
        return (finished - started for started, finished, _ in some if started is not None)

    def _work(self, columns: BatchColumns, caller: int) -> None:
        call = self._call if self._spans is NO_SPANS else self._call_traced
        while (row := self._take()) is not None:
            started = self._begin(row, caller)
            outcome = call(DeliveredMessage(columns, row))
            self._end(row, started, outcome)

    def _call(self, message: DeliveredMessage) -> Outcome | None:
        try:
            result = self._handler.call(message)
            if result is not None and result is not Verdict.ACK:
                return outcome_of(result, self._policy)
        # Whatever it raises (sys.exit(), a Rust panic, a cancelled task) is a failure of this message.
        except BaseException as error:  # noqa: BLE001 - a handler is foreign code
            return failure(error)
        return None

    def _call_traced(self, message: DeliveredMessage) -> Outcome | None:
        with self._spans.of_message(message) as span:
            outcome = self._call(message)
            tell(span, outcome)
        return outcome

    def _on_loop(self, loop: HandlerLoop, columns: BatchColumns, callers: int) -> None:
        held, rounds = HeldLoop(loop, self._timeout_s), 0
        if self._tick is not None:
            loop.call(self._begin_ticks, self._tick)
        try:
            while rounds < _ROUNDS:
                made = len(self._outcomes)
                loop.call(self._begin_on_loop, columns, callers)
                self._wait(set(range(callers)), held.look)
                if self._broken is not None:
                    raise self._broken
                if not self._turns or self._deadline.passed:
                    return
                # The handler cancels all tasks of its loop: those too that make its calls, before they began.
                rounds = rounds + 1 if len(self._outcomes) == made else 0
        finally:
            loop.call(self._end_ticks)
        raise RuntimeError("the handler cancels again and again the tasks that make its calls")

    def _begin_on_loop(self, columns: BatchColumns, callers: int) -> None:
        for caller in range(callers):
            task = asyncio.create_task(self._work_on_loop(columns, caller))
            self._tasks.add(task)
            task.add_done_callback(partial(self._end_on_loop, caller))

    def _end_on_loop(self, caller: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._broken = task.exception() or self._broken
        self._over.put(caller)

    def _begin_ticks(self, tick: Callable[[], None]) -> None:
        self._ticks = asyncio.create_task(self._tick_on_loop(tick))

    def _end_ticks(self) -> None:
        if self._ticks is not None:
            self._ticks.cancel()

    @staticmethod
    async def _tick_on_loop(tick: Callable[[], None]) -> None:
        while True:
            tick()
            await asyncio.sleep(TICK_S)

    @contextmanager
    def _ticking(self) -> Iterator[None]:
        if self._tick is None:
            yield
            return
        tick, over = self._tick, threading.Event()

        def ticks() -> None:
            while not over.wait(TICK_S):
                tick()

        thread = threading.Thread(target=ticks, name="handler-ticks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    async def _work_on_loop(self, columns: BatchColumns, caller: int) -> None:
        while (row := self._take()) is not None:
            started = self._begin(row, caller)
            outcome = None
            limit = asyncio.timeout(self._timeout_s)
            try:
                async with limit:
                    # A task of its own: what the handler cancels is its own call.
                    outcome = await asyncio.create_task(self._call_on_loop(DeliveredMessage(columns, row)))
            except (TimeoutError, asyncio.CancelledError) as error:
                outcome = failure(error)
            if limit.expired():
                outcome = timed_out(self._timeout_s)
            self._end(row, started, outcome)

    async def _call_on_loop(self, message: DeliveredMessage) -> Outcome | None:
        with self._spans.of_message(message) as span:
            outcome = None
            try:
                result: Any = await self._handler.call(message)
                if result is not None and result is not Verdict.ACK:
                    outcome = outcome_of(result, self._policy)
            except BaseException as error:  # noqa: BLE001  (as on threads)
                outcome = failure(error)
            tell(span, outcome)
        return outcome

    def _take(self) -> int | None:
        """The next row; None when all have had their call or wait for one under way, or when it is late."""
        row = None if self._deadline.passed else self._turns.take()
        if row is not None:
            self._deadline.begin()
            self._began(row)
        return row

    def _begin(self, row: int, caller: int) -> int:
        started = _now_us()
        if self._leave is not None:
            self._under_way[row] = caller, started, time.monotonic()
        return started

    def _end(self, row: int, started: int, outcome: Outcome | None) -> None:
        finished = _now_us()
        if self._is_orderly and outcome is not None and outcome.carries:
            # Not behind the calls, where what follows it on its lane would be done already.
            outcome = failure(ValueError("in orderly mode a verdict sends and writes nothing"))
        if self._leave is not None and self._under_way.pop(row, None) is None:
            self._handler.usual.guess(finished - started)
            self._left.pop(row).end((started, finished, outcome))
            return
        self._outcomes[row] = started, finished, outcome
        self._ended(row, started, finished, outcome)
        self._turns.end(row, outcome)


def _now_us() -> int:
    return time.time_ns() // 1_000
