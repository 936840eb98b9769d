"""Whenever the time of a batch is up, each message comes to what it would have come to without.

Contract: being put off costs a message time and nothing else. It is called as often as its script asks for,
with the same outcome and the same delays, one row for each attempt; a batch calls at least one message, so
the rest is done some day.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.group.batch_size import Handled
from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.lane_gate import LaneRules
from jobs.group.outcomes import OutcomeTask
from jobs.handler.invocation import HandlerHost
from jobs.handler.loader import HandlerTarget
from jobs.handler.opened_handler import opened
from jobs.handler.verdicts import PUT_OFF
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import DeliveredMessage, Verdict, vectorised
from tests.support.examples import examples
from tests.support.outcome_rows import SCHEMA, keyed, message
from tests.unit.jobs.handler.test_narrowing import come_again

MOST = 2
POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000], MOST)
LARGE = ("large", "x" * 32_700)  # no retry has space beside it
COSTS_S = {"0": 0.0, "1": 1.0, "7": 7.0}

now_s = [0.0]
called: list[int] = []


def act(offset: int, script: list[str]) -> str:
    """Takes the time of the next word of a script, and returns what it says."""
    word, cost = script[min(called.count(offset), len(script) - 1)].split()
    called.append(offset)
    now_s[0] += COSTS_S[cost]
    return word


def one(delivered: DeliveredMessage) -> Verdict | None:
    """A handler of single messages that follows scripts."""
    word = act(delivered.queue_offset, json.loads(delivered.body))
    if word == "raise":
        raise ValueError("as the script says")
    return Verdict.dead("as the script says") if word == "dead" else None


async def waiting(delivered: DeliveredMessage) -> Verdict | None:
    """The same as a coroutine."""
    return one(delivered)


@vectorised
def many(batch: pa.RecordBatch) -> list[str]:
    """The same for batches: says RETRY in place of raising."""
    rows = zip(batch.column("queue_offset").to_pylist(), batch.column("body").to_pylist(), strict=True)
    words = [act(offset, json.loads(body)) for offset, body in rows]
    return [{"ok": "ACK", "dead": "DEAD", "raise": "RETRY"}[word] for word in words]


@dataclass
class Sent:
    """A message of the test: what its calls do, and whether it has space for a retry."""

    script: list[str]
    large: bool = False

    def at(self, offset: int) -> dict[str, Any]:
        """The message itself."""
        made = message(offset, body=json.dumps(self.script).encode())
        return made | {"properties": [*made["properties"], *([LARGE] if self.large else [])]}

    def comes_to(self) -> tuple[int, str]:
        """How many calls it has, and its last verdict, when nothing is ever put off."""
        for call in range(MOST + 1):
            word = self.script[min(call, len(self.script) - 1)].split()[0]
            if word != "raise":
                return call + 1, "ACK" if word == "ok" else "DEAD"
            if self.large:
                return 1, "DEAD"
        return MOST + 1, "DEAD"


@pytest.fixture(autouse=True)
def _closes_its_loop() -> Iterator[None]:
    yield
    opened(HandlerTarget(f"{__name__}:waiting")).close()
    opened.cache_clear()


def words(*said: str) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(said), st.sampled_from(sorted(COSTS_S))).map(" ".join)


def sent(*said: str, large: st.SearchStrategy[bool]) -> st.SearchStrategy[list[Sent]]:
    script = st.lists(words(*said), min_size=1, max_size=MOST + 1)
    return st.lists(st.builds(Sent, script, large), min_size=1, max_size=12)


@dataclass
class Rounds:
    """Batches of a group until nothing is left of some messages."""

    task: OutcomeTask
    piece: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    handled: list[Handled] = field(default_factory=list)

    def handle(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One batch, in pieces of Arrow; at least one message is called, and all others have their row."""
        before = len(called)
        made = [row for rows in self.task(self._pieces(messages)) for row in rows.to_pylist()]
        assert len(called) > before, "a batch without a call would come again for ever"
        self.rows += made
        return made

    def settle(self, messages: list[Sent]) -> None:
        """Batches until none comes again; each has a row for each of its messages."""
        waiting = [each.at(offset) for offset, each in enumerate(messages)]
        while waiting:
            made = self.handle(waiting)
            assert sorted(row["queue_offset"] for row in made) == sorted(origin(each) for each in waiting)
            waiting = [come_again(row) for row in made if row["verdict"] == "RETRY"]

    def _pieces(self, messages: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(messages), self.piece):
            yield pa.RecordBatch.from_pylist(messages[start : start + self.piece], SCHEMA)


def task(handler: str, concurrency: int, limit_s: float, counts: list[Handled], **more: Any) -> OutcomeTask:
    now_s[0] = 0.0
    called.clear()
    return OutcomeTask(
        *("g", HandlerTarget(f"{__name__}:{handler}"), POLICY, more.pop("mode", "concurrent"), "q", 1),
        host=HandlerHost(concurrency=concurrency),
        limit_s=limit_s,
        clock=lambda: now_s[0],
        handled=counts.append,
        **more,
    )


@pytest.mark.parametrize(("handler", "concurrency"), [("one", 1), ("one", 3), ("waiting", 3)])
@settings(max_examples=examples(60))
@given(
    messages=sent("ok", "ok", "raise", "dead", large=st.sampled_from([False, False, False, True])),
    limit_s=st.sampled_from([0.0, 0.5, 2.0, 10.0]),
    piece=st.integers(1, 5),
)
def test_being_put_off_changes_no_outcome(
    handler: str, concurrency: int, messages: list[Sent], limit_s: float, piece: int
) -> None:
    counts: list[Handled] = []
    rounds = Rounds(task(handler, concurrency, limit_s, counts), piece)
    rounds.settle(messages)
    for offset, each in enumerate(messages):
        rows = [row for row in rounds.rows if row["queue_offset"] == offset]
        put_off = [row for row in rows if row["reason"] == PUT_OFF.reason]
        assert [row["attempt"] for row in rows] == list(range(1, len(rows) + 1))
        assert (len(rows) - len(put_off), rows[-1]["verdict"]) == each.comes_to()
        assert called.count(offset) == len(rows) - len(put_off)
        later = [row for row in rows if row["verdict"] == "RETRY" and row not in put_off]
        assert [row["delay_level"] for row in later] == [2, 3][: len(later)]
        assert not (put_off and each.large)
        assert {row["started_at"] for row in put_off} <= {None}
    assert sum(piece.put_off for piece in counts) == sum(r["reason"] == PUT_OFF.reason for r in rounds.rows)
    assert sum(piece.rows for piece in counts) == len(called)
    if concurrency == 1:
        assert sum(piece.seconds for piece in counts) == pytest.approx(now_s[0])


def test_calls_are_begun_for_as_long_as_the_limit_says() -> None:
    counts: list[Handled] = []
    rounds = Rounds(task("one", 1, 2.0, counts), 3)
    made = rounds.handle([Sent(["ok 1"]).at(offset) for offset in range(7)])
    assert called == [0, 1]
    assert [row["verdict"] for row in made] == ["ACK"] * 2 + ["RETRY"] * 5


@settings(max_examples=examples(60))
@given(
    messages=sent("ok", "ok", "raise", "dead", large=st.sampled_from([False, False, False, True])),
    limit_s=st.sampled_from([0.0, 0.5, 2.0, 10.0]),
    piece=st.integers(1, 5),
)
def test_batches_that_are_put_off_change_no_outcome(messages: list[Sent], limit_s: float, piece: int) -> None:
    # In company a row may be called more often than its attempts say: what its calls say is always the same.
    messages = [Sent(each.script[:1], each.large) for each in messages]
    rounds = Rounds(task("many", 1, limit_s, []), piece)
    rounds.settle(messages)
    for offset, each in enumerate(messages):
        rows = [row for row in rounds.rows if row["queue_offset"] == offset]
        counted = [row for row in rows if row["reason"] != PUT_OFF.reason]
        assert (len(counted), rows[-1]["verdict"]) == each.comes_to()


def test_what_was_put_off_comes_in_whole_batches_again() -> None:
    counts: list[Handled] = []
    rounds = Rounds(task("many", 1, 0.0, counts), 100)
    rounds.settle([Sent(["ok 0"])] * 200)
    times = {row["started_at"] for row in rounds.rows if row["verdict"] == "ACK"}
    assert len(times) == 2, "none of them has failed: no call of few"


def origin(delivered: dict[str, Any]) -> int:
    """The offset of a message where it was first."""
    known = dict(delivered["properties"]).get("LMQ_ORIGIN")
    return int(known.split("/")[2]) if known else int(delivered["queue_offset"])


@settings(max_examples=examples(60))
@given(
    messages=sent("ok", "dead", large=st.booleans()),
    keys=st.text("ab", min_size=12, max_size=12),
    limit_s=st.sampled_from([0.0, 0.5, 2.0, 10.0]),
    piece=st.integers(1, 5),
    concurrency=st.sampled_from([1, 3]),
)
def test_what_an_orderly_group_puts_off_is_called_in_order(
    messages: list[Sent], keys: str, limit_s: float, piece: int, concurrency: int
) -> None:
    parked: frozenset[tuple[Lane, Attempt]] = frozenset()
    verdicts: dict[int, str] = {}
    waiting = [keyed(each.at(offset), keys[offset]) for offset, each in enumerate(messages)]
    order: list[int] = []
    while waiting:
        rules = LaneRules(parked=parked)
        counts: list[Handled] = []
        rounds = Rounds(task("one", concurrency, limit_s, counts, mode="orderly", lanes=rules), piece)
        known = {attempt.queue_offset for _, attempt in parked}
        made = rounds.handle(waiting)
        order += called
        assert sum(piece.rows for piece in counts) == len(called)
        done = {row["queue_offset"]: row["verdict"] for row in made if row["verdict"] != "PARKED"}
        assert not done.keys() & verdicts.keys()
        verdicts |= done
        left = [row["queue_offset"] for row in made if row["verdict"] == "PARKED"]
        assert known.isdisjoint(left), "what is parked already has no second row"
        waiting = [each for each in waiting if each["queue_offset"] not in done]
        assert {each["queue_offset"] for each in waiting} == known - done.keys() | set(left)
        parked = frozenset(
            (Lane("orders", "broker-a", 1, keys[each["queue_offset"]]), Attempt(each["queue_offset"], 1))
            for each in waiting
        )
    assert verdicts == {offset: each.comes_to()[1] for offset, each in enumerate(messages)}
    for key in "ab":
        of_key = [offset for offset in order if keys[offset] == key]
        assert of_key == [offset for offset in range(len(messages)) if keys[offset] == key]
