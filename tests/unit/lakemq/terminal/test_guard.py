"""No control character of a message reaches a terminal; into a pipe all of them go."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemq.terminal.guard import Terminal, shown

SAYING = """\
import argparse, sys, types
from lakemq.cli import app
from lakemq.terminal import output

command = types.ModuleType("saying")
command.register = lambda subparsers: subparsers.add_parser("topic")


def run(args):
    print("\\x1b]0;error\\x07", file=sys.stderr)
    print(output.as_json({"k": "\\x7f\\x9b2J"}), output.cell(["\\x1b[2J", "\\x07"]))


command.run = run
sys.modules["lakemq.cli.commands.topic"] = command
sys.exit(app.main(["topic"]) or 0)
"""


@given(st.text())
def test_what_is_shown_is_printable(text: str) -> None:
    assert all(c in "\n\t" or c.isprintable() for c in shown(text))


@pytest.mark.parametrize("plain", ["", "orders", "grün 飛行機 🛫", "two\n\tlines"])
def test_text_stays_as_it_is(plain: str) -> None:
    assert shown(plain) == plain


def test_stream_behind_is_still_there() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream)
    print("a\x1b]0;title\x07b", file=terminal)
    assert stream.getvalue() == "a\\x1b]0;title\\x07b\n"
    assert not terminal.isatty()


def test_command_shows_escapes_on_a_terminal_and_the_bytes_in_a_pipe() -> None:
    command = [sys.executable, "-c", SAYING]
    piped = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    assert b"\x7f\xc2\x9b2J" in piped
    assert b"\x1b[2J \x07" in piped
    ours, theirs = pty.openpty()
    try:
        subprocess.run(command, stdout=theirs, stderr=theirs, check=True, timeout=120)
        on_terminal = os.read(ours, 10_000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b'"\\u007f\\u009b2J"' in on_terminal
    assert b"\\x1b[2J \\x07" in on_terminal
    assert b"\\x1b]0;error\\x07" in on_terminal
    assert not set(on_terminal) & (set(range(0x20)) - set(b"\r\n\t"))


def test_progress_still_draws_itself() -> None:
    code = (
        "from lakemq.terminal import guard, progress_bar\nguard.guard()\n"
        "with progress_bar.Progress('to \\x07orders') as bar: bar.add(1)"
    )
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
        subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, timeout=120)
        on_terminal = os.read(ours, 10_000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"\rto \\x07orders: " in on_terminal
    assert b"\\r" not in on_terminal
