"""`lakemq consume` that halts at a commit of its ledger, for a test that kills it there.

Owns the arguments: TABLE NUMBER before|after, then those of the command. Run as a module.
"""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import replace
from pathlib import Path

from delta_tables.table import Table
from delta_tables.views import TABLES
from jobs.arguments import add_consume_arguments, consume_settings
from jobs.consume import consume
from lakemq.spark import session
from tests.support.faulty_ledger import CommitFaults, When, with_faults


class Halt(CommitFaults):
    """Goes no further at the commit that would fail: the reader of the pipe kills the process.

    Args:
        fifo: The pipe.
    """

    def __init__(self, fifo: Path) -> None:
        super().__init__()
        self._fifo = fifo

    def _fail(self, table: Table) -> None:
        self._fifo.write_text("0\n", encoding="ascii")
        threading.Event().wait()


def main(name: str, number: str, when: When, *arguments: str) -> None:
    """Runs the group."""
    parser = argparse.ArgumentParser()
    add_consume_arguments(parser)
    parser.add_argument("--halt-after-ledger-commit", type=Path)
    args = parser.parse_args(arguments)
    halt = Halt(args.halt_after_ledger_commit)
    (table,) = (table for table in TABLES if table.name == name)
    halt.arm(table, int(number), when)
    settings = consume_settings(args)
    ledger = with_faults(settings.ledger, halt)
    consume(replace(settings, ledger=ledger), lambda: session("halted", Path("warehouse"), master="local[2]"))


if __name__ == "__main__":
    side: When = "before" if sys.argv[3] == "before" else "after"
    main(sys.argv[1], sys.argv[2], side, *sys.argv[4:])
