"""`lakemq archive`: lands topics in the ledger's table `messages`.

Owns the options and how a failure is shown. The work is jobs.archive's, imported when the command runs,
because it needs Spark.
"""

from __future__ import annotations

import argparse
import logging
import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from jobs.arguments import add_archive_arguments, archive_settings
from lakemq.cli import spark_log
from lakemq.cli.spark_options import add_spark_options, spark_options
from lakemq.cli.subparsers import Subparsers
from lakemq.terminal.failure import CommandFailed, of_usage
from store_native.errors import InternalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.archive import ArchiveSettings, Landed

_log = logging.getLogger(__name__)


def register(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "archive",
        help="land topics in the ledger's table messages",
        description="Copies messages of topics into the Delta table messages, each once. With --once it "
        "lands what is there and ends.",
    )
    add_archive_arguments(parser)
    add_spark_options(parser, "spark.log in the checkpoint")


def run(args: argparse.Namespace) -> int:
    """Runs the archive until it is stopped or, with --once, has landed what is there."""
    from jobs.archive import archive
    from jobs.runtime import spark_end

    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    with of_usage():
        settings = archive_settings(args)
        options = spark_options(args, settings.checkpoint_directory / spark_log.NAME)
    with ExitStack() as stack:

        def make_session() -> SparkSession:
            made = options.session("lakemq archive")
            stack.callback(spark_end.stop, made)
            return made

        try:
            on_end = partial(_say_landed, settings) if args.once else None
            archive(settings, make_session, on_end=on_end)
        except spark_end.SparkEnded as ended:
            _log.warning("%s", ended)
        except InternalError as error:
            seen = f" (Spark's log is {options.log})" if options.log.exists() else ""
            raise CommandFailed(f"archive of {', '.join(settings.topics)}: {error.detail}{seen}") from error
    return 0


def _say_landed(settings: ArchiveSettings, landed: Mapping[str, Landed]) -> None:
    for topic, (rows, missing) in landed.items():
        gone = f"; {missing:,} had expired or are damaged, and were passed over" if missing else ""
        print(f"{topic}: {rows:,} message{'s' * (rows != 1)} landed in messages of {settings.ledger}{gone}")
    query = "SELECT topic, count(*) FROM messages GROUP BY topic"
    print(f'lakemq sql "{query}" --ledger {shlex.quote(str(settings.ledger))} says what is there', flush=True)
