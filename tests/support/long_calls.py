"""Outcomes where calls go on behind their tasks: a handler that is slow until it is let go, and its rows.

Owns the handler, its messages, and the tasks that are run with them in this process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.group.long_calls import LongCalls
from jobs.group.outcomes import OutcomeTask
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import LoadedHandler
from jobs.handler.long_call import HERE
from jobs.handler.opened_handler import opened
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from lakemq.handler import DeliveredMessage, Verdict
from tests.support.outcome_rows import POLICY, SCHEMA, message, retried

DEADLINE_S = 30.0
HOST = HandlerHost(concurrency=4)


class SlowHandler:
    """Handles each message at once, but one whose body says that it is slow: that waits until it is let go.

    Args:
        verdict: Of the slow one; an exception is raised.
        is_async: Whether its calls are coroutines.
    """

    def __init__(self, verdict: Verdict | Exception | None = None, *, is_async: bool = False) -> None:
        self.verdict = verdict
        self.go_on = threading.Event()
        self.calls: list[int] = []
        self._others = len(HERE.calls)
        handle = self.handle_on_loop if is_async else self.handle
        self.loaded = LoadedHandler(handle, False, is_async=is_async)

    def load(self) -> LoadedHandler:
        return self.loaded

    def handle(self, delivered: DeliveredMessage) -> Verdict | None:
        self.calls.append(delivered.queue_offset)
        if "slow" not in delivered.text:
            return None
        assert self.go_on.wait(DEADLINE_S)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    async def handle_on_loop(self, delivered: DeliveredMessage) -> Verdict | None:
        self.calls.append(delivered.queue_offset)
        if "slow" not in delivered.text:
            return None
        assert await asyncio.to_thread(self.go_on.wait, DEADLINE_S)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    def finish(self) -> None:
        """Lets the calls go, and waits until those that were left have ended."""
        self.go_on.set()
        self.await_end()

    def await_end(self) -> None:
        """Waits until none of its calls goes on behind its task."""
        until = time.monotonic() + DEADLINE_S
        while len(HERE.calls) > self._others and time.monotonic() < until:
            threading.Event().wait(0.01)
        assert len(HERE.calls) == self._others


@contextmanager
def calling(handles: SlowHandler) -> Iterator[SlowHandler]:
    try:
        yield handles
    finally:
        handles.finish()
        if handles.loaded.is_async:
            opened(handles).close()


def rows_of(
    directory: Path,
    handles: Any,
    messages: list[dict[str, Any]],
    *,
    host: HandlerHost = HOST,
    limit_s: float | None = 0.2,
    policy: RetryPolicy = POLICY,
    mode: Mode = "concurrent",
    piece: int | None = None,
    **task: Any,
) -> list[dict[str, Any]]:
    handle = OutcomeTask(
        *("g", handles, policy, mode, "query-1", 5),
        host=host,
        limit_s=limit_s,
        long_calls=LongCalls(directory),
        **task,
    )
    pieces = range(0, len(messages), piece or len(messages))
    cut = (messages[first : first + (piece or len(messages))] for first in pieces)
    made = list(handle(pa.RecordBatch.from_pylist(each, SCHEMA) for each in cut))
    return [row for rows in made for row in rows.to_pylist()]


def slow(offset: int = 0) -> dict[str, Any]:
    return message(offset, {"slow": True})


def again(row: dict[str, Any]) -> dict[str, Any]:
    """The message of a row that comes again."""
    origin = f"broker-a/1/{row['queue_offset']}"
    properties = [*row["properties"], ("RETRY_TOPIC", "orders"), ("LMQ_ORIGIN", origin)]
    return retried(90, 0, row["attempt"], body=row["body"], properties=properties)
