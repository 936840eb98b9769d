"""Posts batches, several at a time, and counts what the broker acknowledged.

Owns the window of requests in flight.

Invariants: with one connection messages are stored in the order of the input (at several brokers, those of
one sharding key); each batch has an Idempotency-Key, so a repeat stores nothing twice; after the first
refusal nothing further is sent.

Threads: one for each connection, which only sends; input is read and answers are counted on the caller's.
None outlives the call.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from lakemq.client import BatchResult, Client, InvalidRequest, LakeMQError, OutcomeUnknown
from lakemq.terminal.failure import CommandFailed, described
from lakemq.upload.ndjson import Batch


@dataclass(slots=True)
class Posted:
    """What was sent and what came back.

    Attributes:
        posted: Messages in requests that were sent.
        acknowledged: Messages the broker's answers say are stored.
        seconds: From the first request to the last answer.
        statuses: How many requests were answered with each status.
        brokers: How many of the acknowledged each broker took, where there are several.
    """

    posted: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    brokers: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Acknowledged messages a second."""
        return self.acknowledged / self.seconds if self.seconds else 0.0


def post(
    client: Client,
    topic: str,
    batches: Iterable[Batch],
    *,
    connections: int = 1,
    on_acknowledged: Callable[[int], None] = lambda count: None,
) -> Posted:
    """Sends every batch.

    Args:
        client: The client; its pool should have ``connections`` connections.
        topic: The topic.
        batches: What to send, taken as it is needed.
        connections: Requests in flight; with more than one, batches may be stored in another order.
        on_acknowledged: Receives the number of messages of each answer, from this thread.

    Raises:
        CommandFailed: A line is no message, or a batch was refused; says the line and how many were stored
            before.
    """
    run = uuid.uuid4().hex
    total = Posted()
    waiting: deque[tuple[Batch, Future[list[BatchResult]]]] = deque()
    started = time.monotonic()

    def settle() -> None:
        batch, future = waiting.popleft()
        try:
            results = future.result()
        except LakeMQError as error:
            count_those_in_flight()
            raise CommandFailed(_refusal(error, batch, total)) from error
        count(results)

    def count_those_in_flight() -> None:
        """What was sent already may be stored all the same: it counts."""
        while waiting:
            with suppress(LakeMQError):
                count(waiting.popleft()[1].result())

    def count(results: list[BatchResult]) -> None:
        for result in results:
            total.acknowledged += result.count
            total.statuses[result.status] += 1
            if result.broker_name:
                total.brokers[result.broker_name] += result.count
            on_acknowledged(result.count)

    with ThreadPoolExecutor(connections, thread_name_prefix="lakemq-post") as pool:
        for sequence, batch in enumerate(_read(batches, count_those_in_flight, total)):
            if len(waiting) >= connections:
                settle()
            key = f"{run}-{sequence}"
            waiting.append((batch, pool.submit(_send, client, topic, batch, key)))
            total.posted += len(batch.numbers)
        while waiting:
            settle()
    total.seconds = time.monotonic() - started
    return total


def _read(batches: Iterable[Batch], ended: Callable[[], None], total: Posted) -> Iterator[Batch]:
    """Passes batches on; an input that ends with a line that is no message says what was stored before it."""
    reading = iter(batches)
    while True:
        try:
            batch = next(reading, None)
        except CommandFailed as error:
            ended()
            raise CommandFailed(f"{error} ({total.acknowledged} messages before it were stored)") from error
        if batch is None:
            return
        yield batch


def _send(client: Client, topic: str, batch: Batch, key: str) -> list[BatchResult]:
    try:
        return [client.send_ndjson(topic, bytes(batch.data), idempotency_key=key, in_turn=True)]
    except InvalidRequest as refused:
        if not refused.context.get("brokers"):
            raise
    # Its sharding keys are of several brokers: a request for each, whose lines keep their order.
    results = []
    for lane, (part, places) in _by_lane(client, topic, batch).items():
        try:
            results.append(client.send_ndjson(topic, part, idempotency_key=f"{key}-{lane}", in_turn=True))
        except LakeMQError as error:
            line = error.context.get("line")
            if isinstance(line, int) and 0 < line <= len(places):
                error.context["line"] = places[line - 1]
            raise
    return results


def _by_lane(client: Client, topic: str, batch: Batch) -> dict[str, tuple[bytes, list[int]]]:
    """A batch's lines by the broker of their sharding key, each with its place in the batch, from 1.

    Lines without a key go by themselves, to whose turn it is.
    """
    lanes: dict[str, tuple[bytearray, list[int]]] = {}
    for place, line in enumerate(bytes(batch.data).splitlines(keepends=True), start=1):
        lane = ""
        if b'"sharding_key"' in line:
            with suppress(ValueError, AttributeError):  # what is no message is the broker's to refuse
                lane = client.lane(topic, json.loads(line).get("sharding_key")) or ""
        lines, places = lanes.setdefault(lane, (bytearray(), []))
        lines += line
        places.append(place)
    return {lane: (bytes(lines), places) for lane, (lines, places) in lanes.items()}


def _refusal(error: LakeMQError, batch: Batch, total: Posted) -> str:
    """Says which line of the input was refused and what is stored all the same."""
    place = error.context.get("line", error.context.get("index"))
    offset = place - 1 if "line" in error.context and isinstance(place, int) else place
    if isinstance(offset, int) and 0 <= offset < len(batch.numbers):
        where = f"line {batch.numbers[offset]}"
    else:
        where = f"lines {batch.numbers[0]}-{batch.numbers[-1]}"
    fate = (
        "whether this batch is stored is not known"
        if isinstance(error, OutcomeUnknown)
        else "this batch was not"
    )
    return f"{where}: {described(error)} ({total.acknowledged} messages of other batches were stored, {fate})"
