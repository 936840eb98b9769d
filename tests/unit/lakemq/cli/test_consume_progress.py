"""What is seen of a group while it runs and when it ends."""

from __future__ import annotations

from datetime import UTC, datetime

from jobs.group.batch_report import BatchReport
from jobs.group.waiting_retries import WaitingRetries
from lakemq.cli.consume_progress import ConsumeProgress


def test_the_line_has_the_sums_and_the_last_batch() -> None:
    shown: list[str] = []
    now = [5.0]
    progress = ConsumeProgress(shown.append, clock=lambda: now[0])
    assert not progress.begun
    progress.begin()
    progress.add(BatchReport(1_200, 30, 4, 2.0, 5_678))
    progress.add(BatchReport(10, 0, 1, 0.5, None))
    assert shown == [
        "1,200 handled: 1,166 acknowledged, 30 to come again, 4 given up; "
        "600 a second, 5,678 behind; last batch 2.0 s",
        "1,210 handled: 1,175 acknowledged, 30 to come again, 5 given up; 20 a second; last batch 0.5 s",
    ]
    now[0] = 17.4
    assert progress.begun
    assert progress.summary() == ("1,210 handled: 1,175 acknowledged, 30 to come again, 5 given up in 12 s")


def test_what_was_put_off_is_counted_apart() -> None:
    shown: list[str] = []
    progress = ConsumeProgress(shown.append, clock=lambda: 0.0)
    progress.begin()
    progress.add(BatchReport(3, 0, 0, 2.0, 0, put_off=1_021))
    counted = "3 handled: 3 acknowledged, 0 to come again, 0 given up; 1,021 times put off to a later batch"
    assert shown == [f"{counted}; 2 a second, 0 behind; last batch 2.0 s"]
    assert progress.summary() == f"{counted} in 0 s"


def test_the_summary_says_what_a_later_run_has_to_do() -> None:
    progress = ConsumeProgress(lambda line: None, clock=lambda: 0.0)
    progress.begin()
    progress.add(BatchReport(12, 3, 0, 2.0, 0))
    counted = "12 handled: 9 acknowledged, 3 to come again, 0 given up in 0 s"
    assert progress.summary() == counted
    progress.leave(WaitingRetries(3, datetime(2026, 11, 23, 8, 30, tzinfo=UTC)))
    due = "the first is due at 2026-11-23T08:30:00.000Z"
    assert progress.summary() == f"{counted}; 3 wait for a retry in a later run, {due}"
    progress.leave(WaitingRetries(0, None))
    assert progress.summary() == f"{counted}; no retry waits"
