"""One line that is rewritten on a terminal, and now and then a line in a pipe."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from lakemq.terminal.living_line import LivingLine


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
