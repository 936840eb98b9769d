"""Which skips hold: until their message has a last verdict, and not for a replay of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from jobs.group.skips.open_skips import SkipWatch, open_skips
from tests.support.ledger_rows import append, delivery, path_ledger, skipped


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    made.create(DELIVERIES)
    return made


def watch_of(ledger: PathLedger) -> SkipWatch:
    return SkipWatch(ledger, "g", cast(Any, None))


def offsets(watch: SkipWatch) -> list[int]:
    return sorted(skip.queue_offset for skip in watch.for_batch().messages)


def test_a_ledger_of_an_earlier_release_has_none_and_takes_one_while_the_group_runs(
    ledger: PathLedger,
) -> None:
    watch = watch_of(ledger)
    assert offsets(watch) == []
    append(ledger, SKIPPED_MESSAGES, [skipped(3, 0), skipped(5, 0, consumer_group="other")])
    assert [skip._asdict() for skip in watch.for_batch().messages] == [
        {
            "topic": "orders",
            "broker_name": "broker-a",
            "queue_id": 0,
            "queue_offset": 3,
            "reason": "skipped by anna@host: no use",
        }
    ]


@pytest.mark.parametrize(
    ("attempt", "verdict", "held"),
    [(2, "RETRY", True), (2, "PARKED", True), (2, "DEAD", False), (2, "ACK", False), (5, "DROPPED", False)],
)
def test_a_skip_holds_until_a_later_attempt_has_a_last_verdict(
    ledger: PathLedger, attempt: int, verdict: str, held: bool
) -> None:
    append(ledger, SKIPPED_MESSAGES, [skipped(3, 1)])
    append(ledger, DELIVERIES, [delivery(3, verdict="RETRY"), delivery(4), delivery(3, attempt, verdict)])
    append(ledger, DELIVERIES, [delivery(3, consumer_group="other", verdict="DEAD", attempt=2)])
    append(ledger, DELIVERIES, [delivery(3, broker_name="broker-b"), delivery(3, queue_id=1, attempt=2)])
    assert offsets(watch_of(ledger)) == ([3] if held else [])


def test_a_replay_of_what_was_skipped_is_skipped_only_when_it_is_given_up_anew(ledger: PathLedger) -> None:
    append(
        ledger, DELIVERIES, [delivery(3, verdict="RETRY"), delivery(3, 2, "DEAD"), delivery(3, 3, "RETRY")]
    )
    append(ledger, SKIPPED_MESSAGES, [skipped(3, 1)])
    assert open_skips(ledger, "g") == []
    append(ledger, SKIPPED_MESSAGES, [skipped(3, 3, reason="again")])
    assert [(skip.attempts, skip.reason) for skip in open_skips(ledger, "g")] == [(3, "again")]


def test_the_ledger_is_asked_when_the_table_has_changed_or_a_batch_has_skipped_something(
    ledger: PathLedger,
) -> None:
    watch = watch_of(ledger)
    append(ledger, SKIPPED_MESSAGES, [skipped(3, 0), skipped(9, 0)])
    assert offsets(watch) == [3, 9]
    append(ledger, DELIVERIES, [delivery(3, verdict="DEAD")])
    watch.committed(0)
    assert offsets(watch) == [3, 9], "no batch has skipped it, so nothing was asked"
    watch.committed(1)
    assert offsets(watch) == [9], "it is done: a replay of it is handled"
    append(ledger, DELIVERIES, [delivery(9, verdict="DEAD")])
    assert offsets(watch) == [], "the batch before did not say how it ended"
    append(ledger, SKIPPED_MESSAGES, [skipped(10, 0)])
    assert offsets(watch) == [10]
    append(ledger, SKIPPED_MESSAGES, [skipped(11, 0)])
    assert offsets(watch) == [10, 11]


def test_more_skips_than_one_question_takes_are_all_looked_at(ledger: PathLedger) -> None:
    append(ledger, SKIPPED_MESSAGES, [skipped(7 * n, 0) for n in range(200)])
    append(ledger, DELIVERIES, [delivery(offset) for offset in range(1_400) if offset not in (7, 1_393)])
    assert offsets(watch_of(ledger)) == [7, 1_393]
