"""Ctrl-C at the edges of a command: while modules are imported, and while Python ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Every import of a module is counted; at the one with the number given, the process gets SIGINT: as it is, or
# where Python cannot pass an exception on, as in importlib's own callbacks: it prints a stack and goes on.
INTERRUPTED_IMPORT = """\
import importlib.abc, os, signal, sys
signal.signal(signal.SIGINT, {handler})
class Going:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
class Counting(importlib.abc.MetaPathFinder):
    seen = 0
    def find_spec(self, name, path, target=None):
        Counting.seen += 1
        if Counting.seen == {at}:
            {how}
sys.meta_path.insert(0, Counting())
from lakemq.cli.start import main
own = Counting.seen
sys.argv = ["lakemq", *{argv}]
code = main()
if {at} == 0:
    print(own, Counting.seen, file=sys.stderr)
sys.exit(code)
"""
AT_THE_END = """\
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from lakemq.cli import start
from lakemq.cli.commands import sql
sql.run = lambda args: 0
sys.argv = ["lakemq", "sql", "SELECT 1"]
sys.exit(start.main())
"""
PLAIN = "os.kill(os.getpid(), signal.SIGINT)"
IN_A_CALLBACK = "Going()"
NO_BROKER = ["--endpoint", "127.0.0.1:1"]


def run(code: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], 0),
        (["topic", "list", *NO_BROKER], 1),
        (["tail", "t", *NO_BROKER], 1),
        (["produce", "t", "--body", "x", *NO_BROKER], 1),
        (["sql", "SELECT 1", "--ledger", "no-such-ledger"], 1),
        (["consume", "--help"], 0),
    ],
)
def test_ctrl_c_while_modules_are_imported_ends_without_a_word(argv: list[str], code: int) -> None:
    whole, said = run(
        INTERRUPTED_IMPORT.format(handler="signal.default_int_handler", at=0, how=PLAIN, argv=argv)
    )
    assert whole == code
    own, all_of_them = (int(number) for number in said.split()[-2:])
    step = max(1, (all_of_them - own) // 8)
    ways = [(at, PLAIN) for at in [*range(own + step, all_of_them, step), all_of_them]]
    for at, how in [(own + 1, IN_A_CALLBACK), (own + 4, IN_A_CALLBACK), *ways]:
        code_of = INTERRUPTED_IMPORT.format(handler="signal.default_int_handler", at=at, how=how, argv=argv)
        assert run(code_of) == (130, ""), f"at import {at} of {all_of_them}"


def test_a_command_started_with_ctrl_c_ignored_ignores_it() -> None:
    code, said = run(
        INTERRUPTED_IMPORT.format(handler="signal.SIG_IGN", at=20, how=PLAIN, argv=["--version"])
    )
    assert (code, said) == (0, "")


def test_ctrl_c_when_all_is_done_ends_without_a_word() -> None:
    assert run(AT_THE_END) == (130, "")


def test_ctrl_c_while_a_command_runs_is_the_commands() -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from lakemq.cli import start\n"
        "from lakemq.cli.commands import sql\n"
        "sql.run = lambda args: print(signal.getsignal(signal.SIGINT).__name__, file=sys.stderr) or 0\n"
        "sys.argv = ['lakemq', 'sql', 'SELECT 1']\nsys.exit(start.main())"
    )
    assert run(code) == (0, f"{signal.default_int_handler.__name__}\n")
