"""``lakemq dlq``: a group's dead letters, and having some of them handled again, chosen by SQL.

Owns the arguments and how dead letters are shown; jobs.replay sends them, imported when the command runs,
because it needs an extra.

Invariants: a replay sends nothing without ``--execute``.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lakemq.cli import options
from lakemq.cli.subparsers import Subparsers
from lakemq.cli.verbs import add_broker_verb, add_verb
from lakemq.cli.verbs import run as run
from lakemq.client import Client
from lakemq.terminal import output
from lakemq.terminal.failure import CommandFailed
from lakemq.terminal.progress_bar import Progress

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = ("topic", "broker_name", "queue_id", "queue_offset", "attempts", "last_attempt_at", "message_id")
_FIRST = 10


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser("dlq", help="list a group's dead letters, and have some handled again")
    verbs = parser.add_subparsers(dest="verb", required=True)
    listed = add_verb(verbs, "list", _list, "list the dead letters that were not replayed")
    options.add_format(listed)
    replay = add_broker_verb(
        verbs,
        "replay",
        _replay,
        "have dead letters handled again by their group alone; without --execute only say which. A message "
        "goes on with its next attempt and has all of the group's retries again; what was replayed is in the "
        "ledger's table replays, and is not replayed twice.",
    )
    for verb in (listed, replay):
        verb.add_argument("--group", required=True)
        verb.add_argument(
            "--where",
            metavar="SQL",
            default="true",
            help="over the columns of dead_letters: \"reason LIKE '%%timeout%%' AND topic = 'orders'\" (all)",
        )
        verb.add_argument("--ledger", default="ledger", metavar="DIR", help="the ledger (default: ledger)")
    replay.add_argument("--execute", action="store_true", help="send them")
    replay.add_argument(
        "--rate", type=options.positive, metavar="N", default=1_000, help="messages a second at most (1000)"
    )


def _list(args: argparse.Namespace) -> None:
    from jobs.replay import Replay

    letters = Replay(args.ledger, args.group, args.where).letters
    if args.format == "json":
        print(output.as_json([_shown(letter) for letter in letters.to_pylist()]))
    else:
        print(_table(letters, letters.num_rows))


def _replay(client: Client, args: argparse.Namespace) -> None:
    from jobs.replay import Replay

    replay = Replay(args.ledger, args.group, args.where)
    count = replay.letters.num_rows
    if not args.execute:
        said = {"group": args.group, "would_replay": count, "executed": False}
        if args.format == "json":
            print(output.as_json(said))
            return
        if count:
            print(_table(replay.letters, _FIRST))
        print(f"{count:,} dead letters of group {args.group} would be handled again; --execute sends them")
        return
    with Progress("sent", count) as progress:
        replayed = replay.send(client, rate=args.rate, sent=progress.add)
    if args.format == "json":
        print(
            output.as_json(
                {
                    "group": args.group,
                    "replay_id": replayed.replay_id,
                    "replayed": replayed.sent,
                    "refused": [{"message_id": at, "reason": why} for at, why in replayed.refused],
                    "executed": True,
                }
            )
        )
    else:
        named = f"(replay {replayed.replay_id})"
        print(f"{replayed.sent:,} dead letters of group {args.group} are sent again {named}")
    if replayed.refused:
        at, why = replayed.refused[0]
        raise CommandFailed(f"{len(replayed.refused):,} were refused; the first is {at}: {why}")


def _table(letters: pa.Table, most: int) -> str:
    rows = [
        [str(value) for value in _shown(letter).values()] for letter in letters.slice(0, most).to_pylist()
    ]
    more = letters.num_rows - len(rows)
    return output.table([*_SHOWN, "reason"], rows) + (f"\n... and {more:,} more" if more > 0 else "")


def _shown(letter: dict[str, Any]) -> dict[str, Any]:
    said = {name: letter[name] for name in _SHOWN}
    said["last_attempt_at"] = output.moment(round(letter["last_attempt_at"].timestamp() * 1000))
    return said | {"reason": letter["reason"] or letter["error_text"] or ""}
