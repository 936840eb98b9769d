"""Handlers that do anything, message by message and attempt by attempt, against a model of their verdicts.

Contract: whatever a handler does (returns, raises, says when it wants the message again, takes long, hangs,
ends its process or has it killed), and whether it is called in Spark's worker or in a process of its own,
each attempt has one row, which says what this message's own call came to; attempts count up to the last one;
and a message is called once in each attempt, and once more at most for each death beside it.

A worker that dies has its batch run again with the handler in a process of its own, as the group job has it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.group.outcomes import OutcomeTask
from jobs.handler.invocation import HandlerHost, Isolation
from jobs.handler.isolated_handler import isolated
from jobs.handler.loader import HandlerTarget
from jobs.redelivery.retry_policy import RetryPolicy
from tests.support.examples import examples
from tests.support.outcome_rows import message
from tests.unit.jobs.handler.spark_worker import run_in_worker
from tests.unit.jobs.handler.test_narrowing import as_batch, come_again

MOST = 2
POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], MOST)
TARGET = HandlerTarget("tests.unit.jobs.handler.handlers_that_end:by_script")
TIMEOUT_S = 2.0
CONCURRENCY = 4

LATE = f"the handler did not return within {TIMEOUT_S:g} s (consume timeout)"
DEATHS = {
    "exit": ("worker died (exit status 7)", "WorkerDied"),
    "SIGKILL": ("worker died (signal 9)", "WorkerDied"),
    "SIGSEGV": ("worker died (signal 11)", "WorkerDied"),
    "hang": (LATE, "ConsumeTimeout"),
}
HARMLESS = ["ok", "raise", "dead", "retry", "1", "4", "slow"]
Script = list[str]


def scripts() -> st.SearchStrategy[list[Script]]:
    """A script for each message; the last word of one is that of all later attempts.

    Each death costs a process or two, so they are few.
    """
    harmless = st.lists(st.sampled_from(HARMLESS), min_size=1, max_size=MOST + 1)
    before = st.lists(st.sampled_from(["raise", "retry"]), max_size=MOST)
    after = st.sampled_from([["ok"], ["dead"], ["raise"], []])
    deadly = st.tuples(before, st.sampled_from(sorted(DEATHS)), after).map(lambda of: [*of[0], of[1], *of[2]])
    some = st.tuples(st.lists(harmless, max_size=8), st.lists(deadly, max_size=2))
    return some.flatmap(lambda of: st.permutations([*of[0], *of[1]]))


def word(script: Script, attempt: int) -> str:
    """What a script says for an attempt."""
    return script[min(attempt, len(script)) - 1]


def expected(script: Script) -> list[tuple[Any, ...]]:
    """The rows of a message: verdict, reason, class of the error, level of the delay."""
    rows: list[tuple[Any, ...]] = []
    while not rows or rows[-1][0] == "RETRY":
        attempt = len(rows) + 1
        said = word(script, attempt)
        if said in ("ok", "slow"):
            rows.append(("ACK", None, None, None))
            continue
        if said == "dead":
            rows.append(("DEAD", "as it was told to", None, None))
            continue
        reason, error = DEATHS.get(said, (None, "ValueError" if said == "raise" else None))
        if attempt > MOST:
            rows.append(("DEAD", reason or f"attempts used up (max reconsume times {MOST})", error, None))
        else:
            rows.append(("RETRY", reason, error, int(said) if said.isdigit() else min(attempt, 2) + 1))
    return rows


@dataclass
class Group:
    """A group that handles some messages until nothing of them comes again.

    Attributes:
        deaths: by round, how many messages ended a process, and workers that died with the whole batch.
    """

    notes: Path
    scripts: list[Script]
    host: HandlerHost
    rows: list[dict[str, Any]] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)

    def settle(self) -> None:
        """Handles all, round by round."""
        waiting = [
            message(offset, tags=str(self.notes), body=json.dumps(script).encode())
            for offset, script in enumerate(self.scripts)
        ]
        while waiting:
            assert len(self.deaths) <= MOST, f"{len(waiting)} messages still come again"
            failed = [row for row in self._handle(waiting) if row["verdict"] == "RETRY"]
            waiting = [come_again(row) | {"tags": row["tags"]} for row in failed]

    def _handle(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ended = sum(
            word(json.loads(each["body"]), each["reconsume_times"] + 1) in DEATHS for each in messages
        )
        self.deaths.append(ended)
        batch, made = as_batch(messages), None
        task = OutcomeTask("g", TARGET, POLICY, "concurrent", "q", len(self.deaths), self.host)
        if self.host.isolation == "thread":
            made = run_in_worker(task, batch)
            assert (made is None) == (ended > 0), "a worker dies when a call ends it"
        if made is None:
            self.deaths[-1] += self.host.isolation == "thread"
            self.host = replace(self.host, isolation="process")
            own = replace(task, host=self.host)
            made = [row for rows in own(iter([batch])) for row in rows.to_pylist()]
        self.rows += made
        return made


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    """The process of the handler's own lives over all examples, as far as they let it."""
    yield
    isolated(TARGET, POLICY, CONCURRENCY, TIMEOUT_S, None).close()


@pytest.mark.parametrize("isolation", ["process", "thread"])
@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(scripts=scripts())
def test_each_attempt_says_what_its_own_call_came_to(
    scripts: list[Script], isolation: Isolation, tmp_path: Path
) -> None:
    notes = tmp_path / "calls"
    notes.write_text("")
    group = Group(notes, scripts, HandlerHost(CONCURRENCY, TIMEOUT_S, isolation))
    group.settle()

    columns = ("verdict", "reason", "error_type", "delay_level")
    for offset, script in enumerate(scripts):
        rows = sorted(
            (row for row in group.rows if row["queue_offset"] == offset), key=lambda row: int(row["attempt"])
        )
        assert [row["attempt"] for row in rows] == list(range(1, len(rows) + 1))
        found = [tuple(row[name] for name in columns) for row in rows]
        assert found == expected(script), (script, found)
    calls = Counter(tuple(map(int, line.split())) for line in notes.read_text().splitlines())
    assert calls.keys() == {(row["queue_offset"], row["attempt"]) for row in group.rows}
    for (offset, attempt), times in calls.items():
        beside = group.deaths[attempt - 1]
        assert times <= 1 + beside, f"{scripts[offset]}: attempt {attempt} was called {times} times"
