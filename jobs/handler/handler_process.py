"""The process that an isolated handler runs in.

Owns the child's side of the pipe: batches in, a line before and after each call out.

Invariants: the worker hears of a call before the handler does, so that a call that kills the process is
known; the process ends when its worker does, and before it where memory is short.

Threads: one reads the pipe, so that the worker's end is seen while a call is under way.
"""

from __future__ import annotations

import contextlib
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from jobs.handler import reasons
from jobs.handler.batch_calls import call_batch
from jobs.handler.deadline import Deadline
from jobs.handler.long_call import close_under_way
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.row_calls import RowCalls
from jobs.handler.slow_calls import SlowCalls
from jobs.handler.verdicts import Outcome
from jobs.handler.watchdog import Watchdog
from jobs.redelivery.retry_policy import RetryPolicy

_ALONE_S = 10.0
_ENDED_S = 5.0
"""What calls under way get when the worker is gone: nobody hears of their verdicts any more."""


def serve(pipe: Connection[Any, Any]) -> None:
    """Handles what comes until the pipe is closed."""
    go_first()
    target, policy, timeout_s = pipe.recv()
    try:
        handler = OpenedHandler(target.load())
    except BaseException as error:  # noqa: BLE001 - a handler's module is foreign code
        pipe.send(("failed", f"{reasons.error_type(error)}: {reasons.error_text(error)}"))
        return
    pipe.send(("ready",))
    asked: SimpleQueue[Any] = SimpleQueue()

    def read() -> None:
        try:
            while True:
                asked.put(pipe.recv())
        except (EOFError, OSError):
            asked.put(None)
            threading.Event().wait(_ENDED_S)
            os._exit(1)  # calls go on, or threads that the handler has begun: they would keep it

    threading.Thread(target=read, name="pipe", daemon=True).start()
    try:
        while (question := asked.get()) is not None:
            _answer(pipe, handler, question, policy, timeout_s)
    except OSError:
        pass  # the worker is gone
    close_under_way()
    handler.close()


def go_first() -> None:
    """Has the system, where it is short of memory, end this process before Spark's own."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _answer(
    pipe: Connection[Any, Any], handler: OpenedHandler, question: Any, policy: RetryPolicy, timeout_s: float
) -> None:
    batch = pa.ipc.open_stream(question[1]).read_next_batch()
    if question[0] == "batch":
        slow = SlowCalls(lambda _: batch, timeout_s)
        with Watchdog(timeout_s + _ALONE_S, on_look=slow.look) as watch, question[2].calls() as spans:
            watch.begin(0)
            made = call_batch(handler.call, batch, policy, spans)
            watch.end(0)
        pipe.send(("made", made))
        return
    one_at_a_time = threading.Lock()

    def say(*what: Any) -> None:
        # A worker that is gone hears nothing; the thread that reads the pipe ends this process.
        with one_at_a_time, contextlib.suppress(OSError):
            pipe.send(what)

    slow = SlowCalls(lambda row: batch.slice(row, 1), timeout_s)
    # When the worker is gone the watch would end a call that hangs.
    with Watchdog(timeout_s + _ALONE_S, on_look=slow.look) as watch, question[2].calls() as spans:

        def began(row: int) -> None:
            watch.begin(row)
            say("began", row)

        def ended(row: int, started: int | None, finished: int, outcome: Outcome | None) -> None:
            watch.end(row)
            say("ended", row, started, finished, outcome)

        calls = RowCalls(
            *(handler, policy, question[3], timeout_s),
            began=began,
            ended=ended,
            spans=spans,
            deadline=Deadline(question[5]),
            leave=question[6],
            tick=lambda: say("tick"),
        )
        calls.run(batch, range(batch.num_rows), question[4])
    say("done")
