"""``lakemq maintain``: puts a ledger's small files together, deletes what is old, indexes keys.

Owns the options and what is printed; delta_tables.maintenance does the work, imported when the command runs,
because it needs an extra.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lakemq.cli import options
from lakemq.cli.ledger_options import add_ledger, ledger_session
from lakemq.cli.subparsers import Subparsers
from lakemq.terminal import output


def register(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "maintain",
        help="put a ledger's small files together, delete what is old, index keys",
        description="Makes larger files of a ledger's small ones, deletes replaced files after 31 days, and "
        "indexes deliveries by key. Run it daily. On a path no group writes the ledger meanwhile: beside one "
        "it indexes keys only, and ends with 1.",
    )
    add_ledger(parser)
    parser.add_argument(
        "--keep-days",
        type=options.positive,
        metavar="N",
        help="delete rows that are older, but those that messages wait with (default: keep all)",
    )
    parser.add_argument(
        "--vacuum-hours",
        type=options.positive,
        metavar="N",
        help="keep replaced files so long, a week at least (default: 744, 31 days)",
    )
    options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Maintains the ledger; returns 0."""
    from delta_tables.ledger import ledger_at
    from delta_tables.ledger.catalog_ledger import CatalogLedger
    from delta_tables.ledger.path_ledger import PathLedger
    from delta_tables.maintenance import KEPT_HOURS, maintain, maintain_in_catalog

    ledger, spark = ledger_at(args.ledger), ledger_session(args)
    vacuum_hours = KEPT_HOURS if args.vacuum_hours is None else args.vacuum_hours
    if isinstance(ledger, CatalogLedger):
        assert spark is not None, "a ledger in a catalog has a session"
        maintain_in_catalog(spark, ledger, vacuum_hours=vacuum_hours, keep_days=args.keep_days)
        said = {"ledger": str(ledger), "maintained": True}
        print(output.as_json(said) if args.format == "json" else f"the ledger {ledger} is maintained")
        return 0
    assert isinstance(ledger, PathLedger), "a ledger is on a path or in a catalog"
    reports = [asdict(each) for each in maintain(ledger, vacuum_hours=vacuum_hours, keep_days=args.keep_days)]
    if args.format == "json":
        print(output.as_json(reports))
    elif reports:
        rows = [[output.cell(value) for value in report.values()] for report in reports]
        print(output.table(list(reports[0]), rows))
    return 0
