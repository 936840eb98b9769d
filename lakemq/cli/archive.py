"""`lakemq archive`: lands topics in the ledger's table `messages`.

Owns the options and how a failure is shown. The work is jobs.archive's, imported when the command runs,
because it needs Spark.
"""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemq.cli import spark_log
from lakemq.cli.consume import duration_s
from lakemq.cli.failure import CommandFailed
from lakemq.cli.options import add_endpoint
from store_native.errors import InternalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.archive import ArchiveSettings


def register(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "archive",
        help="land topics in the ledger's table messages",
        description="Copies messages of topics into the Delta table messages, each once. With --once it "
        "lands what is there and ends.",
    )
    parser.add_argument(
        "--topic", required=True, action="append", dest="topics", metavar="TOPIC", help="a topic; repeatable"
    )
    add_endpoint(parser)
    parser.add_argument("--path", metavar="STORE", help="read a store on this machine from its files")
    parser.add_argument(
        "--ledger", default="ledger", metavar="DIR", help="a directory, or catalog.schema (default: ledger)"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="default: under the ledger")
    parser.add_argument("--trigger", default="10s", type=duration_s, metavar="TIME", help="interval (10s)")
    parser.add_argument("--once", action="store_true", help="land what is there now, then end")
    parser.add_argument("--driver-memory", default="2g", metavar="SIZE", help="memory of Spark's JVM (2g)")
    parser.add_argument(
        "--spark-log", type=Path, metavar="FILE", help="where Spark's log goes (spark.log in the checkpoint)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the archive until it is stopped or, with --once, has landed what is there."""
    from jobs.archive import archive
    from lakemq import spark

    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    settings = settings_of(args)
    log = args.spark_log or settings.checkpoint_directory / spark_log.NAME
    with ExitStack() as stack:

        def make_session() -> SparkSession:
            made = spark.session("lakemq archive", **{"spark.driver.memory": args.driver_memory})
            stack.callback(made.stop)
            spark_log.move_to(log, made)
            return made

        try:
            archive(settings, make_session)
        except InternalError as error:
            seen = f" (Spark's log is {log})" if log.exists() else ""
            raise CommandFailed(f"archive of {', '.join(settings.topics)}: {error.detail}{seen}") from error
    return 0


def settings_of(args: argparse.Namespace) -> ArchiveSettings:
    """Reads the options."""
    from delta_tables.ledger import ledger_at
    from jobs.archive import ArchiveSettings

    return ArchiveSettings(
        topics=tuple(dict.fromkeys(args.topics)),
        ledger=ledger_at(args.ledger),
        checkpoint=None if args.checkpoint is None else args.checkpoint.absolute(),
        endpoint=args.endpoint,
        path=None if args.path is None else str(Path(args.path).absolute()),
        trigger="availableNow" if args.once else f"{round(args.trigger * 1000)} milliseconds",
    )
