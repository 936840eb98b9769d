"""A group in a Python program: the options of the command, and no second list of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.frames.frame_handler import FrameHandler
from jobs.spark_group import SparkGroup, arguments_of
from lakemq.spark import group
from store_native.errors import InvalidRequest


def judge(messages: Any) -> Any:
    return messages


def test_options_are_those_of_the_command_by_their_names_in_python(tmp_path: Path) -> None:
    billing = group(
        "billing",
        topic=["orders", "refunds"],
        ledger=str(tmp_path),
        from_="earliest",
        max_reconsume_times=0,
        retry_delays="1s,10s",
        max_batch=50,
        available_now=True,
        until_idle=None,
    )
    settings = billing.settings(judge)
    assert (settings.group, settings.topics, settings.start) == ("billing", ("orders", "refunds"), "earliest")
    assert (settings.max_reconsume_times, settings.retry_delays) == (0, "1s,10s")
    assert (settings.max_messages_per_batch, settings.available_now) == (50, True)
    assert isinstance(settings.handler, FrameHandler)
    assert (settings.handler.target, settings.handler.function) == ("judge", judge)


def test_one_topic_needs_no_list() -> None:
    assert arguments_of({"topic": "orders", "tags": "A || B"}) == ["--topic=orders", "--tags=A || B"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "--topic"),
        ({"topic": "t", "handler": "m:f"}, "--handler=m:f"),
        ({"topic": "t", "concurrency": 3}, "--concurrency=3"),
        ({"topic": "t", "max_batch": 0}, "--max-batch"),
        ({"topic": "t", "max_bat": 5}, "--max-bat=5"),
        ({"topic": "t", "help": True}, "--help"),
        ({"topic": "t", "retry_delays": ["1s", "10s"]}, "retry_delays takes one value"),
    ],
)
def test_an_unknown_or_wrong_option_is_refused_by_name(options: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidRequest, match="options of the group") as refused:
        group("billing", **options)
    assert named in str(refused.value)


def test_broadcast_mode_has_no_retries_for_a_function_of_frames(tmp_path: Path) -> None:
    options = {"topic": "t", "ledger": str(tmp_path), "mode": "broadcast"}
    with pytest.raises(InvalidRequest, match="broadcast"):
        SparkGroup("billing", options, lambda: pytest.fail("a session was made")).settings(judge)


def test_a_stop_is_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop:
        stops = 0

        def stop(self) -> None:
            self.stops += 1

    loops: list[Loop] = []

    def consume(settings: object, make_session: object, *, started: Callable[[Any], None]) -> None:
        loops.append(Loop())
        started(loops[-1])
        if len(loops) == 1:
            billing.stop()

    monkeypatch.setattr("jobs.consume.consume", consume)
    billing = group("billing", topic="t", ledger=str(tmp_path))
    billing.run(judge)
    billing.run(judge)
    billing.stop()
    billing.run(judge)
    billing.run(judge)
    assert [loop.stops for loop in loops] == [1, 0, 1, 0], "and one before a run is of the next"


def test_what_is_no_function_is_refused_with_the_command_for_handlers(tmp_path: Path) -> None:
    group = SparkGroup("g", {"topic": "t", "ledger": str(tmp_path)}, lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidRequest, match="not 'mine:handle': handlers are lakemq consume's"):
        group.run("mine:handle")  # type: ignore[arg-type]
