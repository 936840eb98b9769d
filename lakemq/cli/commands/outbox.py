"""``lakemq outbox``: what a group's verdicts send or write and what of it waits: seen, and given up.

Owns the arguments and what each verb says; jobs.outbox does the work, imported when the command runs, because
it needs an extra.

Invariants: a discard writes nothing without ``--execute``.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lakemq.cli import options
from lakemq.cli.ledger_options import add_ledger, ledger_session
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_verb
from lakemq.cli.verbs import run as run
from lakemq.terminal import output

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.outbox.pending import PendingSends

_FIRST = 10
_COLUMNS = (
    *("sent_topic", "sent_message_id", "sent_table", "message_id", "number", "decided_at", "code", "error"),
)


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "outbox", help="messages and rows that a group's verdicts send or write and that wait: list, discard"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    listed = add_verb(
        verbs,
        "list",
        _list,
        "list the messages that wait to be sent and the rows that wait to be written, and what is refused",
    )
    discard = add_verb(
        verbs,
        "discard",
        _discard,
        "give messages and rows up that wait, with a reason; without --execute only say which. The group "
        "may run: it leaves them out from its next try on. Nothing is deleted: they stay in deliveries.",
    )
    discard.add_argument("--reason", required=True, metavar="TEXT", help="why, for the ledger")
    discard.add_argument("--execute", action="store_true", help="do it")
    for verb in (listed, discard):
        verb.add_argument("--group", required=True, help="the consumer group")
        verb.add_argument(
            "--where",
            metavar="SQL",
            default="true",
            help="over the columns that list --format json shows: \"sent_topic = 'invoices' AND code = "
            "'MESSAGE_TOO_LARGE'\" (default: %(default)s, all)",
        )
        add_ledger(verb)
        options.add_format(verb)


def _chosen(args: argparse.Namespace) -> PendingSends:
    from delta_tables.known_groups import check_group
    from jobs.outbox.pending import PendingSends

    spark = ledger_session(args)
    pending = PendingSends(args.ledger, args.group, args.where, spark=spark)
    check_group(pending.ledger.location, pending.group, spark)
    return pending


def _list(args: argparse.Namespace) -> None:
    messages = _chosen(args).rows()
    if args.format == "json":
        print(output.as_json([_plain(message) for message in messages.to_pylist()]))
    else:
        print(_table(messages, messages.num_rows))


def _discard(args: argparse.Namespace) -> None:
    from jobs.outbox.discard import check_reason, discard

    check_reason(args.reason)
    pending = _chosen(args)
    if not args.execute:
        _preview(args, pending)
        return
    discard_id, count = discard(pending, args.reason)
    if args.format == "json":
        said = {"group": args.group, "discard_id": discard_id, "discarded": count, "executed": True}
        print(output.as_json(said))
    else:
        print(
            f"{count:,} messages and rows that group {args.group} sends are given up (discard {discard_id})"
        )


def _preview(args: argparse.Namespace, pending: PendingSends) -> None:
    messages = pending.rows()
    if args.format == "json":
        said = {"group": args.group, "would_discard": messages.num_rows, "executed": False}
        print(output.as_json(said))
        return
    if messages.num_rows:
        print(_table(messages, _FIRST))
    would = "would be given up; --execute does it"
    print(f"{messages.num_rows:,} messages and rows that group {args.group} sends {would}")


def _table(messages: pa.Table, most: int) -> str:
    rows = [
        [output.cell(message[name]) for name in _COLUMNS] for message in messages.slice(0, most).to_pylist()
    ]
    more = messages.num_rows - len(rows)
    return output.table(_COLUMNS, rows) + (f"\n... and {more:,} more" if more > 0 else "")


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    times = {name: message[name] and message[name].isoformat() for name in ("decided_at", "refused_at")}
    return message | times
