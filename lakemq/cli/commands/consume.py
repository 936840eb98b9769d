"""`lakemq consume`: runs a consumer group in Spark, with its ledger.

Owns the options and how the outcome is shown. The work is jobs.consume's, imported when the command
runs, because it needs Spark.
"""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.arguments import add_consume_arguments, consume_settings
from lakemq.cli import spark_log
from lakemq.cli.consume_progress import ConsumeProgress
from lakemq.cli.spark_options import add_spark_options, spark_options
from lakemq.cli.subparsers import Subparsers
from lakemq.terminal.failure import CommandFailed, of_usage
from lakemq.terminal.living_line import LivingLine
from store_native.errors import InternalError, LakeMQError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.runtime.run_loop import RunLoop
    from jobs.settings import ConsumeSettings

_log = logging.getLogger(__name__)


def register(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "consume",
        help="run a consumer group in Spark, with its ledger",
        description="Reads topics as a consumer group, calls a handler for each message and records every "
        "outcome in the ledger. What fails comes back after a delay; what is given up becomes a dead letter. "
        "Ctrl-C or SIGTERM stops between batches.",
    )
    add_consume_arguments(parser)
    add_spark_options(parser, "spark.log beside the group's checkpoints")
    # For tests that kill the process between the ledger's commit and Spark's.
    parser.add_argument("--halt-after-ledger-commit", type=Path, metavar="FIFO", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Runs the group until it is stopped or idle, or has handled what was there.

    Raises:
        WrongUsage: The arguments are wrong, whatever the broker and the ledger have.
        CommandFailed: The group ended with an error.
        LakeMQError: The broker, the ledger or the handler's module refuses.
    """
    from jobs.consume import consume
    from jobs.runtime import spark_end

    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("jobs.group.start").setLevel(logging.INFO)  # where a new group begins
    with of_usage():
        settings = consume_settings(args)
        options = spark_options(args, settings.checkpoint_of("group").parent / spark_log.NAME)
    options.make_importable()
    with ExitStack() as stack, LivingLine() as line:
        progress = ConsumeProgress(line.show)

        def make_session() -> SparkSession:
            made = options.session(f"lakemq consume {settings.group}")
            stack.callback(spark_end.stop, made)
            return made

        def started(loop: RunLoop) -> None:
            progress.begin()
            _say_started(settings)

        try:
            consume(
                settings,
                make_session,
                after_ledger_commit=_halt(args.halt_after_ledger_commit),
                started=started,
                on_batch=progress.add,
                on_end=progress.leave,
            )
        except spark_end.SparkEnded as ended:
            _log.warning("%s", ended)
        except InternalError as error:
            raise CommandFailed(_failure(settings, error, options.log)) from error
        finally:
            line.clear()
            if progress.begun:
                print(f"group {settings.group}: {progress.summary()}", flush=True)
    return 0


def _failure(settings: ConsumeSettings, error: LakeMQError, log: Path) -> str:
    """Says in one sentence what ended a running group, with the handler and where Java's stacks are."""
    seen = f"; Spark's log is {log}" if log.exists() else ""
    return f"group {settings.group}: {error.detail} (handler {settings.handler.target}{seen})"


def _say_started(settings: ConsumeSettings) -> None:
    print(f"group {settings.group} consumes {settings.topics_in_words}; ledger {settings.ledger}", flush=True)


def _halt(fifo: Path | None) -> Callable[[int], None]:
    """Writes the batch id into a named pipe and goes no further: the reader of the pipe kills the process."""
    if fifo is None:
        return lambda batch_id: None

    def halt(batch_id: int) -> None:
        fifo.write_text(f"{batch_id}\n", encoding="ascii")
        threading.Event().wait()

    return halt
