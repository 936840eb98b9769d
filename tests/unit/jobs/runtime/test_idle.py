"""What still waits on the broker's timers keeps a job from ending."""

from __future__ import annotations

from jobs.runtime.idle import waiting_messages


def test_delayed_messages_are_counted_over_all_levels() -> None:
    lines = ['lakemq_timing_messages{level="1"} 2', 'lakemq_timing_messages{level="3"} 5.0', "lakemq_x 9"]
    page = "\n".join(["# TYPE lakemq_timing_messages gauge", *lines, ""])
    assert waiting_messages(page) == 7
