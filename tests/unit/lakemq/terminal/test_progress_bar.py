"""Where nobody looks at a bar, a caller that asks for it gets a line at each quarter."""

from __future__ import annotations

import io

import pytest

from lakemq.terminal.progress_bar import Progress


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())


def said(total: int | None, *counts: int) -> list[str]:
    lines: list[str] = []
    with Progress("to orders", total, plain=lines.append) as progress:
        for count in counts:
            progress.add(count)
    return lines


def test_each_quarter_is_a_line() -> None:
    assert said(2_000, *[100] * 20) == [
        f"  {count} of 2,000 messages to orders" for count in ("500", "1,000", "1,500", "2,000")
    ]


def test_quarters_that_pass_at_once_are_one_line() -> None:
    assert said(10, 0, 9, 1) == ["  9 of 10 messages to orders", "  10 of 10 messages to orders"]


def test_a_total_that_is_unknown_or_nothing_is_no_line() -> None:
    assert said(None, 5, 5) == []
    assert said(0, 0) == []
