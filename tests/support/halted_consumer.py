"""`lakemq consume` that halts at commits of its ledger, for a test that kills it there.

Owns the arguments: TABLE NUMBER before|after of each commit, then those of the command. Run as a module.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from delta_tables.table import Table
from jobs.arguments import add_consume_arguments, consume_settings
from jobs.consume import consume
from lakemq.spark import session
from tests.support.faulty_ledger import CommitFaults, with_faults

Commit = tuple[str, str, str]
"""Table, which of its commits from 1 on, and the side of it: before or after."""


class Halt(CommitFaults):
    """Goes no further at the commits: the reader of the pipe kills the process when all are reached.

    Args:
        fifo: The pipe.
        commits: At most one of a table.
    """

    def __init__(self, fifo: Path, commits: Sequence[Commit]) -> None:
        super().__init__()
        self._fifo = fifo
        self._commits = set(commits)
        self._made: Counter[str] = Counter()
        self._one = threading.Lock()

    @contextmanager
    def around(self, table: Table, make_rows: Callable[[], None]) -> Iterator[None]:
        """Surrounds one commit; `make_rows` evaluates its rows without writing them."""
        with self._one:
            self._made[table.name] += 1
            number = str(self._made[table.name])
        if (table.name, number, "before") in self._commits:
            make_rows()
            self._halt((table.name, number, "before"))
        yield
        if (table.name, number, "after") in self._commits:
            self._halt((table.name, number, "after"))

    def _halt(self, commit: Commit) -> None:
        with self._one:
            self._commits.remove(commit)
            if not self._commits:
                self._fifo.write_text("0\n", encoding="ascii")
        threading.Event().wait()


def main(commits: Sequence[Commit], arguments: Sequence[str]) -> None:
    """Runs the group."""
    parser = argparse.ArgumentParser()
    add_consume_arguments(parser)
    parser.add_argument("--halt-after-ledger-commit", type=Path)
    args = parser.parse_args(arguments)
    settings = consume_settings(args)
    ledger = with_faults(settings.ledger, Halt(args.halt_after_ledger_commit, commits))
    consume(replace(settings, ledger=ledger), lambda: session("halted", Path("warehouse"), master="local[2]"))


if __name__ == "__main__":
    words = sys.argv[1:]
    first = next(place for place, word in enumerate(words) if word.startswith("--"))
    main([(words[at], words[at + 1], words[at + 2]) for at in range(0, first, 3)], words[first:])
