"""``lakemq dlq``: a group's dead letters, chosen by SQL: seen, exported, handled again, discarded.

Owns the arguments and what each verb says; jobs.dlq does the work, imported when the command runs, because it
needs an extra.

Invariants: a replay sends nothing and a discard writes nothing without ``--execute``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemq.cli import dead_letter_cards, options
from lakemq.cli.ledger_options import add_ledger, ledger_session
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb, add_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client
from lakemq.terminal import output
from lakemq.terminal.failure import CommandFailed, WrongUsage
from lakemq.terminal.progress_bar import Progress
from store_native.errors import InvalidRequest, LakeMQError

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.dlq.choice import DeadLetterChoice, State
    from jobs.dlq.replay import Replay, Replayed

_FIRST = 10
_ALL = "true"


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "dlq", help="a group's dead letters: list, show, export, have handled again, discard"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    listed = add_verb(verbs, "list", _list, "list the dead letters that were neither replayed nor discarded")
    show = add_verb(verbs, "show", _show, "show dead letters whole, whatever was done with them since")
    show.add_argument("message_id", nargs="?", metavar="ID", help="a message; else --where chooses")
    export = add_verb(verbs, "export", _export, "write dead letters into a file, which must not be there yet")
    export.add_argument(
        "--to", type=Path, required=True, metavar="FILE", help="FILE.ndjson or FILE.parquet: all columns"
    )
    discard = add_verb(
        verbs,
        "discard",
        _discard,
        "put dead letters aside, with a reason; without --execute only say which. They are neither listed "
        "nor replayed any more, unless --discarded asks for them; nothing is deleted.",
    )
    discard.add_argument("--reason", required=True, metavar="TEXT", help="why, for the ledger")
    for verb in (listed, show, export, discard):
        options.add_format(verb)
    replay = add_broker_verb(
        verbs,
        "replay",
        _replay,
        "have dead letters handled again by their group alone; without --execute only say which. A message "
        "goes on with its next attempt and has all of the group's retries again; what was replayed is in the "
        "ledger's table replays, and is not replayed twice.",
    )
    replay.add_argument(
        "--rate",
        type=options.positive,
        metavar="N",
        default=1_000,
        help="messages a second at most (default: %(default)s)",
    )
    replay.add_argument(
        "--bodies",
        type=Path,
        metavar="FILE",
        help="other bodies: lines of JSON such as those that export writes, with message_id or topic, "
        "broker_name, queue_id, queue_offset and attempts, and body or body_base64; without --where the dead "
        "letters of the file alone are sent",
    )
    for verb in (listed, show, export, discard, replay):
        verb.add_argument("--group", required=True, help="the consumer group")
        verb.add_argument(
            "--where",
            metavar="SQL",
            help="over the columns of dead_letters: \"reason LIKE '%%timeout%%' AND topic = 'orders'\" "
            f"(default: {_ALL}, all)",
        )
        add_ledger(verb)
    for verb in (listed, export, replay):
        verb.add_argument("--discarded", action="store_true", help="of those that were discarded")
    for verb in (replay, discard):
        verb.add_argument("--execute", action="store_true", help="do it")


def _chosen(
    args: argparse.Namespace, state: State | None = None, client: Client | None = None
) -> DeadLetterChoice:
    """The dead letters that the arguments name, of a group that the ledger knows, or a given broker."""
    from delta_tables.known_groups import check_group
    from jobs.dlq.choice import DeadLetterChoice

    named: State = "discarded" if getattr(args, "discarded", False) else "open"
    spark = ledger_session(args)
    where = _ALL if args.where is None else args.where
    choice = DeadLetterChoice(args.ledger, args.group, where, state or named, spark=spark)
    try:
        check_group(choice.ledger.location, choice.group, spark)
    except InvalidRequest:
        if client is None or not _is_at_broker(client, choice.group):
            raise
    return choice


def _is_at_broker(client: Client, group: str) -> bool:
    try:
        client.group(group)
    except LakeMQError:
        return False
    return True


def _list(args: argparse.Namespace) -> None:
    letters = _chosen(args).summaries()
    if args.format == "json":
        print(output.as_json([dead_letter_cards.summary(letter) for letter in letters.to_pylist()]))
    else:
        print(dead_letter_cards.table(letters, letters.num_rows))


def _show(args: argparse.Namespace) -> None:
    from jobs.dlq.choice import with_id
    from jobs.dlq.export import as_object

    if (args.message_id is None) == (args.where is None):
        raise WrongUsage("dlq show takes a message's ID, or --where")
    if args.message_id is not None:
        args.where = with_id(args.message_id)
    choice = _chosen(args, "any")
    letters = choice.rows(with_audit=True).to_pylist()
    if not letters:
        raise CommandFailed(f"no dead letter of group {args.group} fits {args.where}")
    if args.format == "json":
        print(output.as_json([as_object(each) | {"history": choice.attempts(each)} for each in letters]))
        return
    cards = [dead_letter_cards.card(letter, choice.attempts(letter)) for letter in letters[:_FIRST]]
    more = len(letters) - len(cards)
    print(
        "\n\n----\n\n".join(cards) + (f"\n\n... and {more:,} more; --format json shows all" if more else "")
    )


def _export(args: argparse.Namespace) -> None:
    from jobs.dlq.export import export

    count = export(_chosen(args), args.to)
    if args.format == "json":
        print(output.as_json({"group": args.group, "file": str(args.to), "exported": count}))
    else:
        print(f"{count:,} dead letters of group {args.group} are in {args.to}")


def _discard(args: argparse.Namespace) -> None:
    from jobs.dlq.discard import check_reason, discard

    check_reason(args.reason)
    choice = _chosen(args)
    if not args.execute:
        _preview(args, choice.summaries(), "would_discard", "would be discarded; --execute does it")
        return
    discard_id, count = discard(choice, args.reason)
    if args.format == "json":
        said = {"group": args.group, "discard_id": discard_id, "discarded": count, "executed": True}
        print(output.as_json(said))
    else:
        print(f"{count:,} dead letters of group {args.group} are discarded (discard {discard_id})")


def _preview(
    args: argparse.Namespace,
    letters: pa.Table,
    name: str,
    would: str,
    more: Mapping[str, Any] | None = None,
) -> None:
    if args.format == "json":
        said = {"group": args.group, name: letters.num_rows, **(more or {}), "executed": False}
        print(output.as_json(said))
        return
    if letters.num_rows:
        print(dead_letter_cards.table(letters, _FIRST))
    print(f"{letters.num_rows:,} dead letters of group {args.group} {would}")


def _replay(client: Client, args: argparse.Namespace) -> None:
    from jobs.dlq.edited_bodies import EditedBodies
    from jobs.dlq.replay import Replay

    bodies = None if args.bodies is None else EditedBodies(args.bodies)
    replay = Replay(_chosen(args, client=client), bodies, only_named=args.where is None)
    if not args.execute:
        replay.check_sizes(client)
        _preview_replay(args, replay)
        return
    try:
        with Progress("sent", replay.letters.num_rows) as progress:
            replayed = replay.send(client, rate=args.rate, sent=progress.add)
    except KeyboardInterrupt:
        if replay.replayed is not None:
            print(f"lakemq: {_interrupted(args.group, replay.replayed)}", file=sys.stderr)
        raise
    if args.format == "json":
        refused: list[dict[str, Any]] = [{"message_id": at, "reason": why} for at, why in replayed.refused]
        said = {"group": args.group, "replay_id": replayed.replay_id, "replayed": replayed.sent}
        print(output.as_json({**said, "refused": refused, "executed": True}))
    else:
        named = f"(replay {replayed.replay_id})"
        before = 0 if replay.edits is None else replay.edits.sent_before
        named += f"; {before:,} more of the file were sent before" if before else ""
        print(f"{replayed.sent:,} dead letters of group {args.group} are sent again {named}")
    if replayed.refused:
        at, why = replayed.refused[0]
        raise CommandFailed(f"{len(replayed.refused):,} were refused; the first is {at}: {why}")


def _preview_replay(args: argparse.Namespace, replay: Replay) -> None:
    would, more = "would be handled again", {}
    if replay.edits is not None:
        changed, before = len(replay.edits.changed), replay.edits.sent_before
        more = {"with_another_body": changed, "sent_before": before}
        would += f", {changed:,} of them with another body"
        would += f" ({before:,} more of the file were sent before)" if before else ""
    _preview(args, replay.letters, "would_replay", f"{would}; --execute sends them", more)


def _interrupted(group: str, replayed: Replayed) -> str:
    return (
        f"interrupted: {replayed.sent:,} dead letters of group {group} are sent again "
        f"(replay {replayed.replay_id}); the same command goes on with the others"
    )
