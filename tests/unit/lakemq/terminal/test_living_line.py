"""One line that is rewritten on a terminal, and now and then a line in a pipe."""

from __future__ import annotations

import io
import logging
import sys
import threading

import pytest

from lakemq.terminal.living_line import LivingLine
from tests.support.waiting import wait_until


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_a_line_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with LivingLine(clock=lambda: now[0]) as line:
        for second in range(0, 130, 10):
            now[0] = float(second)
            line.show(f"at {second}")
    assert capsys.readouterr().err == "at 60\nat 120\n"


def test_a_pipe_gets_the_newest_line_when_its_minute_is_over_though_nothing_follows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    said: list[str] = []

    def read() -> str:
        said.append(capsys.readouterr().err)
        return "".join(said)

    with LivingLine(every_s=0.05, clock=lambda: now[0]) as line:
        line.show("29 behind")
        line.show("0 behind")
        assert read() == "", "held back"
        now[0] = 1.0
        wait_until(lambda: read() == "0 behind\n")
        line.show("1 behind")
        line.clear()
        now[0] = 2.0
        line.show("2 behind")
        assert read() == "0 behind\n2 behind\n", "what was taken away is not shown later"
        line.show("3 behind")
    threads = {thread.name for thread in threading.enumerate()}
    assert (read(), "living-line" in threads) == ("0 behind\n2 behind\n", False)


def test_what_is_logged_leaves_the_line_that_is_held_back(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    with LivingLine(every_s=0.05, clock=lambda: now[0]) as line:
        line.show("0 behind")
        logging.getLogger("anything").warning("look")
        now[0] = 1.0
        wait_until(lambda: capsys.readouterr().err == "0 behind\n")
    assert [record.message for record in caplog.records] == ["look"]


def test_a_terminal_has_one_line_and_what_is_logged_stands_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    handler = logging.StreamHandler(screen)
    logging.getLogger().addHandler(handler)
    try:
        with LivingLine() as line:
            line.show("first")
            line.show("sec\x1bond")
            logging.getLogger("anything").warning("look")
            line.show("third")
    finally:
        logging.getLogger().removeHandler(handler)
    begin = "\r\x1b[K"
    assert screen.getvalue() == f"{begin}first{begin}sec\\x1bond{begin}look\n{begin}third{begin}"
