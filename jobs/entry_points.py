"""What a Databricks task runs: the same jobs with arguments instead of a command line's comfort.

Owns the entry points named in jobs/resources. They take the session the cluster gives and register the
source by themselves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobs.arguments import (
    add_archive_arguments,
    add_consume_arguments,
    archive_settings,
    consume_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def consume_task(arguments: Sequence[str] | None = None) -> None:
    """Runs a consumer group; arguments as `lakemq consume`."""
    from jobs.consume import consume

    consume(consume_settings(_parse("consume", add_consume_arguments, arguments)), _session)


def archive_task(arguments: Sequence[str] | None = None) -> None:
    """Lands topics; arguments as `lakemq archive`."""
    from jobs.archive import archive

    archive(archive_settings(_parse("archive", add_archive_arguments, arguments)), _session)


def maintenance_task(arguments: Sequence[str] | None = None) -> None:
    """Compacts and cleans a ledger; arguments --ledger, --vacuum-hours, --keep-days."""
    from delta_tables.ledger import ledger_at
    from delta_tables.ledger.catalog_ledger import CatalogLedger
    from delta_tables.ledger.path_ledger import PathLedger
    from delta_tables.maintenance import KEPT_HOURS, maintain, maintain_in_catalog

    parser = argparse.ArgumentParser(prog="lakemq-maintenance", allow_abbrev=False)
    parser.add_argument("--ledger", required=True, help="a directory, or catalog.schema")
    parser.add_argument("--vacuum-hours", type=int, default=KEPT_HOURS)
    parser.add_argument("--keep-days", type=int)
    args = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    ledger = ledger_at(args.ledger)
    limits = {"vacuum_hours": args.vacuum_hours, "keep_days": args.keep_days}
    if isinstance(ledger, CatalogLedger):
        maintain_in_catalog(_session(), ledger, **limits)
    elif isinstance(ledger, PathLedger):
        for report in maintain(ledger, **limits):
            print(report)


def _parse(
    name: str, add: Callable[[argparse.ArgumentParser], None], arguments: Sequence[str] | None
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"lakemq-{name}", allow_abbrev=False)
    add(parser)
    return parser.parse_args(sys.argv[1:] if arguments is None else arguments)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from lakemq import sent_files
    from structured_streaming.datasource import LakeMQDataSource

    sent_files.take_wheels()
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(LakeMQDataSource)
    return spark
