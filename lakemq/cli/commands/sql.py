"""`lakemq sql`: queries the ledger; one on a path without a JVM.

Owns the three forms in which a result is printed. The engines are delta_tables', imported when the command
runs, because they need an extra.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import math
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemq.cli.ledger_options import add_ledger, ledger_session
from lakemq.cli.subparsers import Subparsers
from lakemq.terminal import output
from lakemq.terminal.failure import CommandFailed, described
from store_native.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_tables.ledger_reader import LedgerReader
    from delta_tables.spark_reader import SparkReader

_QUICK_STARTS = Path(".quickstart/ledger")


def register(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "sql",
        help="query the ledger in SQL",
        description="Tables: messages, deliveries, dead_letters, consumer_offsets, data_losses, replays, "
        "sent_messages, written_rows, refused_sends, discarded_sends, skipped_messages, truncated_ranges. "
        "Views: deliveries_by_key, delivery_history, message_trace, group_progress, pending_retries, "
        "parked_messages, pending_dead_letters, pending_sends, dead_letter_summary, delivery_gaps, "
        "duplicate_deliveries.",
    )
    parser.add_argument("query", metavar="SELECT", help="one SQL statement; - reads it from standard input")
    add_ledger(parser)
    parser.add_argument(
        "--engine",
        choices=("auto", "spark"),
        default="auto",
        help="spark: also a ledger in a directory is queried by Spark, which takes seconds to start, spills "
        "to disk what memory does not hold, and has functions of its own (default: %(default)s)",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="how to print (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints a statement's result."""
    query = sys.stdin.read() if args.query == "-" else args.query
    result = _reader(args).sql(query)
    print({"table": as_table, "json": as_json, "csv": as_csv}[args.format](result))
    return 0


def _reader(args: argparse.Namespace) -> LedgerReader | SparkReader:
    """Opens a ledger; where there is none, but the quick start's lies here, it is named."""
    from delta_tables.opened_ledger import OpenedLedger

    try:
        return OpenedLedger(args.ledger, ledger_session(args, wanted=args.engine == "spark")).reader
    except InvalidRequest as error:
        if Path(args.ledger) == _QUICK_STARTS or not _QUICK_STARTS.is_dir():
            raise
        raise CommandFailed(f"{described(error)}; the quick start's is --ledger {_QUICK_STARTS}") from error


def as_table(result: pa.Table) -> str:
    """Lays a result out for people, with the number of rows below, and where values are cut."""
    rows = [[_readable(value) for value in row.values()] for row in result.to_pylist()]
    counted = f"({result.num_rows} row{'' if result.num_rows == 1 else 's'})"
    said = [output.table(result.column_names, rows), counted]
    cut = {name: sum(output.is_cut(row[at]) for row in rows) for at, name in enumerate(result.column_names)}
    if any(cut.values()):
        where = ", ".join(f"{name} ({count})" for name, count in cut.items() if count)
        said.append(f"cut to {output.WIDEST} characters: {where}; --format json or csv shows all")
    return "\n".join(said)


def as_json(result: pa.Table) -> str:
    """Writes a result as a JSON array of objects; bodies as text, or in base64 when they are not."""
    return output.as_json([_plain(row) for row in result.to_pylist()])


def as_csv(result: pa.Table) -> str:
    """Writes a result as CSV with a header; what is not a scalar is JSON inside its field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in result.to_pylist():
        values = (_plain(value) for value in row.values())
        writer.writerow(
            [
                output.as_json(value, indent=None) if isinstance(value, (list, dict)) else value
                for value in values
            ]
        )
    return out.getvalue().rstrip("\n")


def _readable(value: Any) -> Any:
    plain = _plain(value) if not isinstance(value, datetime) else value
    return output.as_json(plain, indent=None) if isinstance(plain, (list, dict)) and plain else plain


def _plain(value: Any) -> Any:
    """Replaces what JSON has no word for."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if type(value).__name__ == "MonthDayNano":  # without an import of Arrow at each start of the command line
        return _duration(*value)
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return {str(name): _plain(inner) for name, inner in value}
        return [_plain(inner) for inner in value]
    return value


def _duration(months: int, days: int, nanoseconds: int) -> str:
    """Writes an interval as ISO 8601 has it: ``P1M2DT3.5S``."""
    date_part = "".join(f"{count}{unit}" for count, unit in ((months, "M"), (days, "D")) if count)
    seconds = f"{Decimal(nanoseconds).scaleb(-9).normalize():f}"
    return f"P{date_part}T{seconds}S" if nanoseconds or not date_part else f"P{date_part}"
