"""What is seen of a group while it runs and when it ends."""

from __future__ import annotations

from jobs.group.batch_report import BatchReport
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
