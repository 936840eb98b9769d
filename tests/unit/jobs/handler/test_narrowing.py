"""A batch over all its attempts: a message whose own call succeeds is never given up.

The rounds run without a broker: what the ledger's row says goes back as the message the retry job makes
of it, until nothing comes again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.group.outcome_rows import IN_COMPANY
from jobs.group.outcomes import OutcomeTask
from jobs.handler.loader import LoadedHandler
from jobs.handler.narrowing import RETRY_CHUNK_ROWS, failures_allowed
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.settings import Mode
from lakemq.handler import Verdict
from tests.support.examples import examples
from tests.support.outcome_rows import SCHEMA, message

LEVELS = [1_000, 10_000, 30_000, 60_000]
Handler = Callable[[pa.RecordBatch], Any]


class Group:
    """A group that handles a batch and what comes back of it."""

    def __init__(self, handler: Handler, max_reconsume_times: int, mode: Mode = "concurrent") -> None:
        self.calls = 0
        self.round = 0
        self.rows: list[dict[str, Any]] = []

        def counted(batch: pa.RecordBatch) -> Any:
            self.calls += 1
            return handler(batch)

        class Target:
            def load(self) -> LoadedHandler:
                return LoadedHandler(counted, vectorised=True)

        policy = RetryPolicy.of("10s", LEVELS, max_reconsume_times)
        self._task = OutcomeTask("g", Target(), policy, mode, "q", 0)  # type: ignore[arg-type]

    def handle(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One attempt at each message; returns those that come again, as they then stand."""
        made = [row for b in self._task(iter([as_batch(messages)])) for row in b.to_pylist()]
        assert [row["source_queue_offset"] for row in made] == [m["queue_offset"] for m in messages]
        self.rows += made
        self.round += 1
        return [come_again(row) for row in made if row["verdict"] == "RETRY"]

    def settle(self, messages: list[dict[str, Any]], most_rounds: int) -> None:
        """Handles until nothing comes again."""
        waiting = messages
        while waiting:
            assert self.round < most_rounds, f"{len(waiting)} messages still come again"
            waiting = self.handle(waiting)
        keys = Counter((row["queue_offset"], row["attempt"]) for row in self.rows)
        assert set(keys.values()) == {1}

    def offsets(self, verdict: str) -> list[int]:
        return sorted(row["queue_offset"] for row in self.rows if row["verdict"] == verdict)


def as_batch(messages: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(messages, SCHEMA)


def come_again(row: dict[str, Any]) -> dict[str, Any]:
    """The message jobs.retry makes of a row."""
    kept = [(k, v) for k, v in row["properties"] if k not in ("RETRY_TOPIC", "LMQ_ORIGIN")]
    origin = f"{row['broker_name']}/{row['queue_id']}/{row['queue_offset']}"
    return message(
        row["source_queue_offset"],
        topic="%RETRY%g",
        queue_id=0,
        body=row["body"],
        reconsume_times=row["attempt"],
        properties=[*kept, ("RETRY_TOPIC", row["topic"]), ("LMQ_ORIGIN", origin)],
    )


def messages(rows: int) -> list[dict[str, Any]]:
    return [message(offset, {"n": offset}) for offset in range(rows)]


def numbers(batch: pa.RecordBatch) -> list[int]:
    return [json.loads(body)["n"] for body in batch.column("body").to_pylist()]


def raises_for(bad: set[int]) -> Handler:
    def handle(batch: pa.RecordBatch) -> None:
        if not bad.isdisjoint(numbers(batch)):
            raise ValueError("bad row")

    return handle


def test_bad_rows_do_not_take_good_ones_along() -> None:
    bad = set(range(50, 10_000, 100))
    group = Group(raises_for(bad), max_reconsume_times=4)
    group.settle(messages(10_000), most_rounds=5)
    assert group.offsets("DEAD") == sorted(bad)
    assert group.offsets("ACK") == sorted(set(range(10_000)) - bad)
    assert len(group.offsets("RETRY")) == 4 * len(bad)  # none but the bad ever came again


def test_bad_rows_once_found_are_handled_alone() -> None:
    bad = set(range(0, 1_000, 7))
    group = Group(raises_for(bad), max_reconsume_times=4)
    again = group.handle(messages(1_000))
    group.calls = 0
    group.handle(again)
    assert group.calls == len(bad)


def test_while_everything_fails_the_handler_is_not_called_per_row_and_nothing_counts() -> None:
    down = True

    def handle(batch: pa.RecordBatch) -> None:
        if down:
            raise ConnectionError("database is down")

    rows = 2_000
    group = Group(handle, max_reconsume_times=3)
    waiting = messages(rows)
    for _ in range(3):
        group.calls = 0
        before = group.rows
        group.rows = []
        waiting = group.handle(waiting)
        assert len(waiting) == rows
        alone = [row for row in group.rows if row["reason"] != IN_COMPANY]
        assert group.calls <= 4 * failures_allowed(rows)
        assert len(alone) <= 3 * failures_allowed(rows)
        group.rows += before
    down = False
    group.settle(waiting, most_rounds=4)
    assert group.offsets("DEAD") == []
    assert group.offsets("ACK") == list(range(rows))


def test_so_many_calls_may_fail_before_one_has_succeeded() -> None:
    assert [failures_allowed(rows) for rows in (0, 1, 16, 1_000)] == [8, 12, 28, 48]


def test_a_failure_in_company_is_not_counted_and_says_so() -> None:
    def handle(batch: pa.RecordBatch) -> None:
        raise ConnectionError("database is down")

    group = Group(handle, max_reconsume_times=0)
    again = group.handle(messages(1_000))
    kinds = Counter((row["verdict"], row["reason"]) for row in group.rows)
    assert kinds["RETRY", IN_COMPANY] > 900
    assert kinds.keys() == {
        ("RETRY", IN_COMPANY),
        ("DEAD", "attempts used up (max reconsume times 0)"),
    }
    assert all(row["error_text"] == "database is down" for row in group.rows)
    assert all(dict(m["properties"])["LMQ_UNCOUNTED"] == "1" for m in again)


def test_messages_that_come_again_are_handled_in_small_chunks() -> None:
    sizes: list[int] = []
    down = True

    def handle(batch: pa.RecordBatch) -> None:
        sizes.append(batch.num_rows)
        if down:
            raise ConnectionError

    group = Group(handle, max_reconsume_times=9)
    again = group.handle(messages(600))
    down = False
    sizes.clear()
    assert group.handle(again) == []
    assert max(sizes) == RETRY_CHUNK_ROWS


def test_a_handler_that_says_retry_for_many_and_works_for_the_rest_is_not_the_batchs_failure() -> None:
    rows = 63 * RETRY_CHUNK_ROWS  # slices of one size, which are looked at in order
    group = Group(lambda batch: Verdict.RETRY, max_reconsume_times=9)
    again = group.handle(messages(rows))
    first = failures_allowed(rows) * RETRY_CHUNK_ROWS
    group = Group(lambda batch: Verdict.RETRY if numbers(batch)[0] < first else None, max_reconsume_times=9)
    assert len(group.handle(again)) == first
    assert group.offsets("ACK") == list(range(first, rows))


def test_the_first_rows_being_bad_does_not_hide_that_the_others_are_good() -> None:
    bad = set(range(500))
    group = Group(raises_for(bad), max_reconsume_times=1)
    group.settle(messages(1_000), most_rounds=2)
    assert group.offsets("DEAD") == sorted(bad)


def test_a_message_that_cannot_come_back_is_given_up_by_its_own_call_only() -> None:
    def handle(batch: pa.RecordBatch) -> None:
        if batch.num_rows > 1:
            raise MemoryError

    full = {"properties": [("long", "x" * 32_200)]}
    group = Group(handle, max_reconsume_times=3)
    group.handle([message(n, {"n": n}, **(full if n % 10 == 0 else {})) for n in range(300)])
    assert group.offsets("DEAD") == []


@pytest.mark.parametrize("mode", ["broadcast", "concurrent"])
def test_while_everything_fails_what_cannot_come_back_is_given_up_by_its_own_call_only(mode: Mode) -> None:
    alone: set[int] = set()

    def handle(batch: pa.RecordBatch) -> None:
        if batch.num_rows == 1:
            alone.update(numbers(batch))
        raise ConnectionError

    full = {} if mode == "broadcast" else {"properties": [("long", "x" * 32_200)]}
    group = Group(handle, 3, mode)
    assert group.handle([message(n, {"n": n}, **full) for n in range(300)]) == []
    assert group.offsets("DROPPED" if mode == "broadcast" else "DEAD") == list(range(300))
    assert alone == set(range(300))


def test_a_senders_own_property_of_that_name_changes_nothing() -> None:
    bad = [message(0, {"n": 0}, properties=[("LMQ_UNCOUNTED", "400"), ("colour", "red")])]
    group = Group(raises_for({0}), max_reconsume_times=2)
    group.settle(bad, most_rounds=3)
    assert group.offsets("DEAD") == [0]


def words(bad: set[int]) -> Handler:
    """Says of each message what becomes of it."""
    return lambda batch: ["RETRY" if n in bad else None for n in numbers(batch)]


def column(bad: set[int]) -> Handler:
    return lambda batch: pc.if_else(pa.array([n in bad for n in numbers(batch)]), "RETRY", "ACK")


def one_verdict(bad: set[int]) -> Handler:
    """Catches its own exception and says RETRY for all it got."""
    return lambda batch: Verdict.RETRY if bad & set(numbers(batch)) else None


def wrong_shape(bad: set[int]) -> Handler:
    return lambda batch: ["ACK"] * (batch.num_rows + 1) if bad & set(numbers(batch)) else None


def panics(bad: set[int]) -> Handler:
    class Panic(BaseException):
        def __str__(self) -> str:
            raise RuntimeError

    def handle(batch: pa.RecordBatch) -> None:
        if bad & set(numbers(batch)):
            raise Panic

    return handle


SHAPES = [raises_for, words, column, one_verdict, wrong_shape, panics]


@settings(max_examples=examples(30), deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    rows=st.integers(1, 150),
    share=st.sampled_from([0.0, 0.01, 0.05, 0.5, 0.9, 1.0]),
    most=st.integers(0, 3),
    outages=st.sets(st.integers(0, 4)),
    seed=st.randoms(use_true_random=False),
)
def test_a_message_whose_own_call_succeeds_is_never_dead(
    shape: Callable[[set[int]], Handler], rows: int, share: float, most: int, outages: set[int], seed: Any
) -> None:
    bad = {n for n in range(rows) if seed.random() < share}
    failed_alone: set[int] = set()
    good = shape(bad)

    def handle(batch: pa.RecordBatch) -> Any:
        own = numbers(batch)
        if group.round in outages:
            if len(own) == 1:
                failed_alone.update(own)
            raise ConnectionError("database is down")
        if len(own) == 1 and own[0] in bad:
            failed_alone.update(own)
        return good(batch)

    group = Group(handle, most)
    group.settle(messages(rows), most_rounds=200)
    assert set(group.offsets("DEAD")) <= failed_alone
    assert set(group.offsets("ACK")) == set(range(rows)) - set(group.offsets("DEAD"))
    counted = Counter(row["queue_offset"] for row in group.rows if row["reason"] != IN_COMPANY)
    assert all(counted[offset] <= most + 1 for offset in range(rows))
    if not outages:
        assert set(group.offsets("DEAD")) == bad


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_bad_is_given_up_after_its_attempts(shape: Callable[[set[int]], Handler]) -> None:
    bad = set(range(0, 300, 10))
    group = Group(shape(bad), max_reconsume_times=2)
    group.settle(messages(300), most_rounds=3)
    assert group.offsets("DEAD") == sorted(bad)


@settings(max_examples=examples(30), deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    rows=st.integers(1, 300),
    share=st.sampled_from([0.0, 0.01, 0.05, 0.5, 0.9, 1.0]),
    seed=st.randoms(use_true_random=False),
)
def test_in_broadcast_mode_only_what_fails_by_itself_is_dropped(
    shape: Callable[[set[int]], Handler], rows: int, share: float, seed: Any
) -> None:
    bad = {n for n in range(rows) if seed.random() < share}
    group = Group(shape(bad), 16, "broadcast")
    group.settle(messages(rows), most_rounds=1)
    assert set(group.offsets("DROPPED")) == bad
    assert set(group.offsets("ACK")) == set(range(rows)) - bad


def test_in_broadcast_mode_company_alone_drops_nothing() -> None:
    def handle(batch: pa.RecordBatch) -> None:
        if batch.num_rows > 1:
            raise MemoryError

    group = Group(handle, 16, "broadcast")
    group.settle(messages(2_000), most_rounds=1)
    assert group.offsets("ACK") == list(range(2_000))
