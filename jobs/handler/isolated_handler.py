"""A handler in a process beside Spark's worker.

Owns that process: it is started when there is something to handle, killed when a call takes too long or it
has too much in memory, and started again when it died.

Invariants: a process that dies takes no message's verdict along: those whose calls were under way are called
alone in a process of their own, so that only the message whose own call dies is blamed. So they are when a
call is late and nothing else moves: one of them, or one that goes on behind its batch, holds the interpreter
or the event loop. Each message is
called at most once more for another's sake at each death.

Processes: this one is Spark's worker; the child serves handler_process.py and ends with the worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.handler.batch_calls import Made
from jobs.handler.call_order import CallOrder
from jobs.handler.deadline import NEVER, Deadline
from jobs.handler.loader import HandlerTarget
from jobs.handler.long_call import Leave
from jobs.handler.narrowing import Call, Said, failures_allowed
from jobs.handler.results import CallMade, HandlerResults, of_calls
from jobs.handler.row_calls import TICK_S
from jobs.handler.verdicts import Outcome, timed_out, worker_died
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.call_spans import NOT_TRACED, TracedBatch
from store_native.errors import from_code

_START = (
    "import sys; from multiprocessing.connection import Connection as C; c = C(int(sys.argv[1])); "
    "sys.path[:] = c.recv(); from lakemq import own_packages; own_packages.claim(); "
    "from jobs.handler.handler_process import serve; serve(c)"
)
"""Not ``-m``: a package ``jobs`` of the user's, beside which a job is started, would be taken for ours."""
_READY_S = 120.0
_DIED_S = 5.0
_GRACE_S = 1.0
"""What a coroutine that is cancelled in the child gets before the child is killed."""
LOOK_S = 0.05
"""So often it is looked at what the process has in memory."""
_STILL_S = 5 * TICK_S
"""Without a tick for so long, the calls do not hang each by itself."""
DEATHS_WITHOUT_A_CALL = 3
"""So often the process may die between two calls before what is left counts as failed."""


class HandlerProcessDied(Exception):
    """The process is gone.

    Attributes:
        outcome: What that says of a message whose call was under way.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class IsolatedHandler:
    """A handler whose calls may hang or kill their process.

    Args:
        target: The user's handler.
        policy: For delays a verdict names.
        concurrency: Calls at a time, for a handler of single messages.
        timeout_s: How long one may take.
        memory: Bytes that the process may have in memory, looked at every LOOK_S; None: any. On Linux.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        target: HandlerTarget,
        policy: RetryPolicy,
        concurrency: int,
        timeout_s: float,
        memory: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._policy = policy
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._memory = memory
        self._clock = clock
        self._looked_at = -LOOK_S
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection[Any, Any] | None = None
        self._goes_on = False

    def call_batch(self, piece: pa.RecordBatch, traced: TracedBatch = NOT_TRACED) -> Call[Made]:
        """Calls a vectorised handler once; a process that dies or hangs is the call's failure."""
        began = self._clock()
        started = time.time_ns() // 1_000
        try:
            pipe = self._ready()
            self._ask(pipe, ("batch", _as_stream(piece), traced))
            while True:
                said = self._next(pipe, began)
                if said[0] == "made":
                    made: Call[Made] = said[1]
                    return made
        except HandlerProcessDied as died:
            failed = Made(started, time.time_ns() // 1_000, {}, died.outcome)
            return Call(failed, Said.RAISED)

    def call_rows(
        self,
        batch: pa.RecordBatch,
        order: CallOrder | None = None,
        traced: TracedBatch = NOT_TRACED,
        deadline: Deadline = NEVER,
        leave: Leave | None = None,
    ) -> HandlerResults:
        """Calls a handler of single messages with each row.

        Args:
            batch: The messages.
            order: Which calls follow each other, and the outcome of rows that are not called; None: none.
            traced: What the spans of the calls say of the batch.
            deadline: From when on no call is begun, but to find the one that ended the process.
            leave: Has a call under way go on then.
        """
        rows = range(batch.num_rows)
        order = order or CallOrder.at_once(rows)
        found: dict[int, CallMade] = {}
        in_company: set[int] = set()
        in_vain = deaths = 0
        while True:
            left = order.left({row: outcome for row, (_, _, outcome) in found.items()})
            if deadline.passed or not left.lanes:
                break
            known = len(found)
            died, suspects = self._call_some(batch, left, self._concurrency, found, traced, deadline, leave)
            if died is None:
                continue
            self._say(died, len(suspects))
            for row in sorted(suspects):
                alone, began = self._call_some(batch, replace(order, lanes=((row,),)), 1, found, traced)
                if alone is not None:
                    if row not in found:
                        found[row] = began.get(row, suspects[row]), time.time_ns() // 1_000, alone
                    deaths += 1
            if deaths == len(found) and deaths > failures_allowed(batch.num_rows):
                # It ends its process whatever it is given: nothing is known of the others.
                at = time.time_ns() // 1_000
                heads = order.left({row: outcome for row, (_, _, outcome) in found.items()}).heads
                in_company = set(heads)
                found.update(dict.fromkeys(heads, (at, at, died)))
                break
            in_vain = in_vain + 1 if len(found) == known else 0
            if in_vain == DEATHS_WITHOUT_A_CALL:
                # It ended before a call: that says nothing of any message.
                at = time.time_ns() // 1_000
                in_company = set(left.heads)
                found.update(dict.fromkeys(left.heads, (at, at, died)))
                break
        results = of_calls(rows, found, order.otherwise, time.time_ns() // 1_000)
        if in_company:
            results.in_company = pa.array([row in in_company for row in rows])
        return results

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            _kill(self._process)
        self._process = self._pipe = None

    def _call_some(
        self,
        batch: pa.RecordBatch,
        order: CallOrder,
        concurrency: int,
        found: dict[int, CallMade],
        traced: TracedBatch,
        deadline: Deadline = NEVER,
        leave: Leave | None = None,
    ) -> tuple[Outcome | None, dict[int, int]]:
        """Has rows handled; returns None, or what the process died of and the rows that were under way.

        A row whose call took too long by itself has its outcome, it is not among them.
        """
        under_way: dict[int, tuple[float, int]] = {}
        moved = self._clock()
        rows = order.rows
        piece = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))
        try:
            pipe = self._ready()
            numbered = order.numbered(rows)
            leaves = None if leave is None else leave.of(rows)
            asked = (_as_stream(piece), traced, concurrency, numbered, deadline.left_s, leaves)
            self._ask(pipe, ("rows", *asked))
            while True:
                oldest = min((began for began, _ in under_way.values()), default=None)
                said = self._next(pipe, oldest)
                moved = self._clock()
                if said[0] == "began":
                    deadline.begin()
                    under_way[rows[said[1]]] = self._clock(), time.time_ns() // 1_000
                elif said[0] == "ended":
                    del under_way[rows[said[1]]]
                    found[rows[said[1]]] = said[2], said[3], said[4]
                    self._goes_on |= said[4] is not None and said[4].put_off
                elif said[0] == "done":
                    return None, {}
        except HandlerProcessDied as died:
            now, at = self._clock(), time.time_ns() // 1_000
            goes_on, self._goes_on = self._goes_on, False
            late = {row for row, (began, _) in under_way.items() if now - began > self._timeout_s}
            # One that goes on behind an earlier batch may be what holds them.
            if (len(under_way) > 1 or goes_on) and now - moved > _STILL_S:
                late = set()
            for row in late:
                found[row] = under_way[row][1], at, timed_out(self._timeout_s)
            return died.outcome, {row: at for row, (_, at) in under_way.items() if row not in late}

    @staticmethod
    def _say(died: Outcome, calls: int) -> None:
        again = f"; {calls} call{'s' * (calls > 1)} under way made again, each alone" if calls else ""
        with contextlib.suppress(OSError, ValueError):
            print(f"lakemq: the handler's process ended: {died.reason}{again}", file=sys.stderr, flush=True)

    def _ask(self, pipe: Connection[Any, Any], question: Any) -> None:
        try:
            pipe.send(question)
        except OSError:  # it died between two batches
            raise HandlerProcessDied(self._end_of_process()) from None

    def _next(self, pipe: Connection[Any, Any], began: float | None) -> Any:
        """What the child says next.

        Raises:
            HandlerProcessDied: It died, or was killed: a call that began then took too long, or it had too
                much in memory.
        """
        until = None if began is None else began + self._timeout_s + _GRACE_S
        try:
            while True:
                self._check_memory()
                left = None if until is None else max(until - self._clock(), 0.0)
                wait = left if self._memory is None else min(LOOK_S, LOOK_S if left is None else left)
                if wait is None or pipe.poll(wait):
                    return pipe.recv()
                if until is not None and self._clock() >= until:
                    self.close()
                    raise HandlerProcessDied(timed_out(self._timeout_s))
        except (EOFError, OSError):
            raise HandlerProcessDied(self._end_of_process()) from None

    def _check_memory(self) -> None:
        """Kills a process that has more in memory than it may."""
        if self._memory is None or self._process is None or self._clock() - self._looked_at < LOOK_S:
            return
        self._looked_at = self._clock()
        if in_memory(self._process.pid) > self._memory:
            self.close()
            raise HandlerProcessDied(worker_died(f"more than {self._memory >> 20} MiB in memory"))

    def _ready(self) -> Connection[Any, Any]:
        """The pipe to a process that has opened the handler."""
        if self._pipe is not None:
            return self._pipe
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # killed with all it started
            )
        self._pipe = ours
        try:
            ours.send([entry or str(Path.cwd()) for entry in sys.path])
            ours.send((self._target, self._policy, self._timeout_s))
            # Its open() has as long as a call.
            ready_s = max(_READY_S, self._timeout_s)
            said = ours.recv() if ours.poll(ready_s) else ("failed", f"not ready within {ready_s:g} s")
        except (EOFError, OSError):
            said = ("failed", self._end_of_process().reason)
        if said[0] != "ready":
            self.close()
            raise from_code("ARGUMENT_ILLEGAL", f"the handler's process did not get ready: {said[1]}")
        return ours

    def _end_of_process(self) -> Outcome:
        """What the process died of."""
        process = self._process
        assert process is not None, "a pipe has a process at its other end"
        try:
            status = process.wait(_DIED_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            status = process.wait()
        self.close()
        return worker_died(f"signal {-status}" if status < 0 else f"exit status {status}")


def in_memory(pid: int) -> int:
    """How many bytes of a process are in memory; none where the system does not say so as Linux does."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, LookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _as_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


@cache
def isolated(
    target: HandlerTarget, policy: RetryPolicy, concurrency: int, timeout_s: float, memory: int | None
) -> IsolatedHandler:
    """The isolated handler of this worker; its process ends with the worker."""
    return IsolatedHandler(target, policy, concurrency, timeout_s, memory)
