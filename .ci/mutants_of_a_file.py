"""Changes the file named as the argument, one place at a time, and runs the tests that cover it.

Owns which changes are made, and the report. mutmut makes them, puts them all beside each other into one
file, and forks a process with the tests loaded for each; mutants_of_python.py has written its configuration.

What mutmut changes is its own list (numbers, comparisons, operators, arguments, assigned values) with these
differences:

- Added: a condition turned round; a call, a raise or a deletion left out; None returned in place of a value.
- Words for people (texts with a space in them, what is logged) stay as they are; a code or a name is
  changed once.

Not changed are functions under a decorator (properties, context managers) and what runs when a module is
loaded.
"""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import libcst as cst
import libcst.matchers as m
import pytest
from hypothesis import Phase, settings
from mutmut import __main__ as mutmut
from mutmut.core import MutmutCallStack
from mutmut.mutation import mutators
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import mangled_name_from_mutant_name

TABLE = Path(".ci/mutants-python.toml")
# What survived is one of these; everything else was noticed, a time-out too.
UNNOTICED = ("survived", "no tests", "skipped")
LEAST = 0.85

_LOG_CALL = m.Expr(m.Call(func=m.Attribute(value=m.Name("log") | m.Name("_log"))))


def negated(node: cst.If | cst.While) -> Iterable[cst.CSTNode]:
    """Turns a condition round."""
    inner = node.test.with_changes(
        lpar=[cst.LeftParen(), *node.test.lpar], rpar=[*node.test.rpar, cst.RightParen()]
    )
    turned = cst.UnaryOperation(cst.Not(), inner, lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    space = {"whitespace_before_test": cst.SimpleWhitespace(" ")} if isinstance(node, cst.If) else {}
    yield node.with_changes(test=turned, **space)


def left_out(node: cst.Expr | cst.Raise | cst.Del) -> Iterable[cst.CSTNode]:
    """Leaves out a statement that is there for what it does."""
    if isinstance(node, cst.Expr) and not m.matches(node.value, m.Call() | m.Await() | m.Yield()):
        return
    if not m.matches(node, _LOG_CALL):
        yield cst.Pass(semicolon=node.semicolon)


def nothing_returned(node: cst.Return) -> Iterable[cst.CSTNode]:
    """Returns None in place of a value."""
    if node.value is not None and not m.matches(node.value, m.Name("None")):
        yield node.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))


def is_for_people(node: cst.CSTNode) -> bool:
    """Says whether an expression is a text with a space in it."""
    if isinstance(node, cst.ConcatenatedString):
        return is_for_people(node.left) or is_for_people(node.right)
    if isinstance(node, cst.FormattedString):
        return any(isinstance(part, cst.FormattedStringText) and " " in part.value for part in node.parts)
    return isinstance(node, cst.SimpleString) and " " in node.value


def another_code(node: cst.SimpleString) -> Iterable[cst.CSTNode]:
    """Makes another text of a code or a name."""
    if not is_for_people(node):
        yield from islice(mutators.operator_string(node), 1)


def another_argument(node: cst.Call) -> Iterable[cst.CSTNode]:
    """Puts None in an argument's place, or leaves the argument out."""
    for index, argument in enumerate(node.args):
        if is_for_people(argument.value):
            continue
        others = node.args[:index], node.args[index + 1 :]
        if argument.star == "" and not m.matches(argument.value, m.Name("None")):
            yield node.with_changes(
                args=[*others[0], argument.with_changes(value=cst.Name("None")), *others[1]]
            )
        if len(node.args) > 1:
            yield node.with_changes(args=[*others[0], *others[1]])


def another_value(node: cst.Assign | cst.AnnAssign) -> Iterable[cst.CSTNode]:
    """Assigns None."""
    if node.value is not None and not is_for_people(node.value):
        yield from mutators.operator_assignment(node)


def choose_changes() -> None:
    """Makes mutmut's list of changes the one described above."""
    replaced = {
        mutators.operator_string: (cst.SimpleString, another_code),
        mutators.operator_arg_removal: (cst.Call, another_argument),
        mutators.operator_assignment: None,
    }
    operators = [replaced.get(operator, (kind, operator)) for kind, operator in mutators.mutation_operators]
    mutators.mutation_operators[:] = [
        *(entry for entry in operators if entry is not None),
        ((cst.Assign, cst.AnnAssign), another_value),
        ((cst.If, cst.While), negated),
        ((cst.Expr, cst.Raise, cst.Del), left_out),
        (cst.Return, nothing_returned),
    ]


class EndAtOnce:
    """Ends a process that tests a change at its first failure, and what its tests started.

    What a fixture would wait for after it, such as a thread that never ends, would be waited for in vain.
    """

    def __init__(self) -> None:
        self._parent = os.getpid()

    def pytest_sessionstart(self) -> None:
        """Called by pytest."""
        if os.getpid() != self._parent:
            os.setpgid(0, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        if report.failed and os.getpid() != self._parent:
            os.killpg(0, signal.SIGKILL)


def end_at_once() -> None:
    """Has mutmut run pytest with the plugin."""
    plugin = EndAtOnce()
    execute = PytestRunner.execute_pytest

    def with_plugin(self: PytestRunner, params: list[str], **named: Any) -> int:
        return execute(self, params, plugins=[*named.pop("plugins", []), plugin], **named)

    PytestRunner.execute_pytest = with_plugin


def leave_out(every: int) -> None:
    """Has mutmut try one change out of so many."""
    collect = mutmut.collect_source_file_mutation_data

    def some(**named: Any) -> Any:
        mutants, data = collect(**named)
        return mutants[::every], data

    mutmut.collect_source_file_mutation_data = some


def add_programs(tests: list[str]) -> None:
    """Has tests that start programs of their own try every change: no call in there is seen from here."""
    collect = mutmut.collect_source_file_mutation_data

    def with_tests(**named: Any) -> Any:
        mutants, data = collect(**named)
        for _, name, _ in mutants:
            state().tests_by_mangled_function_name[mangled_name_from_mutant_name(name)].update(tests)
        return mutants, data

    mutmut.collect_source_file_mutation_data = with_tests


def forget_callers() -> None:
    """Keeps no stack of who called whom: nothing needs it, and a ``__del__`` in between spoils it."""
    MutmutCallStack.get = lambda: (None, 0)
    MutmutCallStack.set = MutmutCallStack.reset = lambda _: None


def change(*names: str, programs: list[str]) -> None:
    """Makes the changes and runs the tests on each, or on those with these names again."""
    choose_changes()
    end_at_once()
    forget_callers()
    add_programs(programs)
    if not names:
        every = os.environ.get("LAKEMQ_MUTANTS_EVERY", "1")
        if not every.isdecimal() or not int(every):
            sys.exit(f"EVERY={every}: one change of how many is tried, a number from 1 on")
        leave_out(int(every))
    if not sys.stdout.isatty():
        mutmut.print_stats = lambda *_, **__: None
    # Nothing is made smaller that failed: that it failed is all one wants to know.
    settings.register_profile(
        "mutants",
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
    )
    mutmut._run(names, 1)  # noqa: SLF001 - its command line does only this


def described(file: str, name: str) -> tuple[str, str]:
    """Returns the lines a change replaces, and what it puts there."""
    lines = get_diff_for_mutant(name, path=file).splitlines()[2:]
    before, after = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in ("-", "+")
    )
    return before, after


def report(file: str, equivalent: list[dict[str, str]]) -> bool:
    """Prints what no test noticed, and one row; says whether the score is reached."""
    data = SourceFileMutationData(path=file)
    data.load()
    harmless = {(entry["old"], entry["new"]) for entry in equivalent}
    tried = {name: code for name, code in data.exit_code_by_key.items() if code is not None}
    ends = {name: status_by_exit_code[code] for name, code in tried.items()}
    unnoticed = [name for name, end in ends.items() if end in UNNOTICED]
    left = []
    for name in unnoticed:
        if (pair := described(file, name)) not in harmless:
            left.append(name)
            print(f"{ends[name]}: {name.rpartition('.')[2]}\n  - {pair[0]}\n  + {pair[1]}")
    made, total = len(data.exit_code_by_key), len(ends)
    noticed, same = total - len(unnoticed), len(unnoticed) - len(left)
    score = noticed / max(total - same, 1)
    print(f"| {file} | {made} | {total} | {noticed} | {same} | {score:.0%} |", flush=True)
    return score >= LEAST


def main() -> int:
    """Runs the one file."""
    file = sys.argv[1]
    table: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    change(*sys.argv[2:], programs=table[file].get("programs", []))
    return 0 if report(file, table[file].get("equivalent", [])) else 1


if __name__ == "__main__":
    sys.exit(main())
