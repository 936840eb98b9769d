"""The ledger of an operator's command: on a path, or in a catalog, which is reached through Spark.

Owns the options, and the session.

Invariants: a ledger on a path starts no JVM unless it was asked for; nothing but the command's own result is
on standard output, and no file is left behind.
"""

from __future__ import annotations

import argparse
import atexit
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lakemq.cli.options import pair
from lakemq.terminal.failure import WrongUsage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Adds ``--ledger`` and ``--conf``."""
    parser.add_argument(
        "--ledger",
        default="ledger",
        metavar="LEDGER",
        help="the ledger: a directory, or catalog.schema, which Spark is started for (default: %(default)s)",
    )
    add_conf(parser)


def add_conf(parser: argparse.ArgumentParser) -> None:
    """Adds ``--conf``."""
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=VALUE",
        help="a setting of Spark, for a ledger in a catalog (may be repeated)",
    )


def ledger_session(args: argparse.Namespace, *, wanted: bool = False) -> SparkSession | None:
    """Returns the session that reaches the ledger: the active one, or one of this process's own.

    Args:
        args: With the options of :func:`add_ledger`.
        wanted: Also for a ledger on a path.

    Returns:
        None where there is no need of one.

    Raises:
        WrongUsage: There is none, and --conf is given.
        InvalidRequest: ARGUMENT_ILLEGAL, the ledger's name is none; there is no Java.
        ImportError: pyspark is not installed; the text says what to install.
    """
    from delta_tables.ledger import ledger_at
    from delta_tables.ledger.path_ledger import PathLedger

    if isinstance(ledger_at(args.ledger), PathLedger) and not wanted:
        if args.conf:
            raise WrongUsage("--conf is for Spark, which a ledger in a directory does not need")
        return None
    from lakemq import spark

    if (active := spark.active()) is not None:
        return active
    print("lakemq: Spark starts, for the ledger", file=sys.stderr, flush=True)
    # Spark makes its warehouse where it has none, and the command's directory is not the place.
    scratch = Path(tempfile.mkdtemp(prefix="lakemq-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return spark.session(
        "lakemq", scratch / "warehouse", starts_into=scratch / "spark.log", **dict(args.conf)
    )
