"""Where a handler is called: in this process and in one of its own, with all that the calls are told."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from delta_tables.deliveries import ACK, RETRY
from jobs.handler.batch_calls import Before
from jobs.handler.call_order import CallOrder
from jobs.handler.deadline import Deadline
from jobs.handler.invocation import HandlerHost, Isolation, invoke
from jobs.handler.isolated_handler import isolated
from jobs.handler.loader import HandlerTarget
from jobs.handler.results import HandlerResults
from jobs.handler.verdicts import PUT_OFF
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import DeliveredMessage, Verdict, vectorised

POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 16)
CONCURRENCY, TIMEOUT_S, MEMORY = 3, 60.0, 1 << 40
BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])


def by_body(message: DeliveredMessage) -> Verdict | None:
    """Says in which process it is called, or wants a delay; `retry` fails."""
    if message.text == "where":
        return Verdict.dead(str(os.getpid()))
    if message.text == "retry":
        raise ValueError(message.text)
    return Verdict.retry(99) if message.text == "later" else None


@vectorised
def of_batch(batch: pa.RecordBatch) -> list[Verdict]:
    """Fails with a batch in which a message does, and says in which process it is called."""
    if b"retry" in batch.column("body").to_pylist():
        raise ValueError("one of them")
    return [Verdict.dead(f"{os.getpid()} of {batch.num_rows}")] * batch.num_rows


@pytest.fixture(autouse=True)
def one_process() -> Iterator[None]:
    """The processes live until the test is over."""
    yield
    for name in ("by_body", "of_batch"):
        isolated(target(name), POLICY, CONCURRENCY, TIMEOUT_S, MEMORY).close()


def target(name: str) -> HandlerTarget:
    return HandlerTarget(f"{__name__}:{name}")


def called(name: str, isolation: Isolation, *bodies: bytes, **more: object) -> HandlerResults:
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    host = HandlerHost(CONCURRENCY, TIMEOUT_S, isolation, MEMORY)
    given = {"before": None} | more
    return invoke(target(name), batch, POLICY, host=host, **given)  # type: ignore[arg-type]


def reasons(results: HandlerResults) -> list[str | None]:
    assert results.reason is not None
    return list(results.reason.to_pylist())


def verdicts(results: HandlerResults) -> list[str]:
    assert results.verdict is not None
    return list(results.verdict.to_pylist())


@BOTH
@pytest.mark.parametrize("name", ["by_body", "of_batch"])
def test_a_handler_is_called_where_it_is_to_be(name: str, isolation: Isolation) -> None:
    (said,) = reasons(called(name, isolation, b"where"))
    assert said is not None
    assert (said.split()[0] == str(os.getpid())) == (isolation == "thread")


@BOTH
def test_a_delay_is_one_that_the_store_has(isolation: Isolation) -> None:
    results = called("by_body", isolation, b"a", b"later")
    assert results.delay_level is not None
    assert results.delay_level.to_pylist() == [None, 4]


@BOTH
def test_a_lane_ends_at_a_failure_and_has_the_calls_before_it(isolation: Isolation) -> None:
    order = CallOrder(((0, 1, 2), (3,)))
    results = called("by_body", isolation, b"a", b"retry", b"a", b"a", order=order)
    assert verdicts(results) == [ACK, RETRY, "PARKED", ACK]


@BOTH
@pytest.mark.parametrize("name", ["by_body", "of_batch"])
def test_nothing_is_called_behind_the_deadline(name: str, isolation: Isolation) -> None:
    deadline = Deadline(0.0)
    deadline.begin()
    results = called(name, isolation, b"where", b"where", deadline=deadline)
    assert reasons(results) == [PUT_OFF.reason] * 2
    assert results.started_at.null_count == 2
    assert results.finished_at.null_count == 0


@BOTH
def test_a_batch_without_a_past_is_halved_for_the_message_that_fails(isolation: Isolation) -> None:
    results = called("of_batch", isolation, *[b"a"] * 7, b"retry")
    assert verdicts(results) == ["DEAD"] * 7 + [RETRY]


@BOTH
def test_messages_of_a_batch_that_failed_by_themselves_are_called_alone(isolation: Isolation) -> None:
    rows = 4
    before = Before([True] * rows, [True, False, False, True], lambda row: False, lambda row: False)
    said = reasons(called("of_batch", isolation, *[b"a"] * rows, before=before))
    assert [text and text.split(" of ")[1] for text in said] == ["1", "2", "2", "1"]
