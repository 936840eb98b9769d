"""The arguments of the jobs: what `lakemq consume`, `lakemq archive` and a cluster's tasks take.

Owns their names, defaults and how they become settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lakemq.client.endpoint import add_endpoint
from lakemq.duration import parse_ms

if TYPE_CHECKING:
    from jobs.archive import ArchiveSettings
    from jobs.settings import ConsumeSettings


def add_consume_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a consumer group."""
    parser.add_argument("--group", required=True, help="the consumer group")
    parser.add_argument(
        "--topic", required=True, action="append", dest="topics", metavar="TOPIC", help="a topic; repeatable"
    )
    parser.add_argument(
        "--handler",
        required=True,
        metavar="MODULE:FUNCTION",
        help="called with each message, or with batches",
    )
    add_endpoint(parser)
    parser.add_argument("--path", metavar="STORE", help="read a store on this machine from its files")
    parser.add_argument(
        "--ledger", default="ledger", metavar="DIR", help="a directory, or catalog.schema (default: ledger)"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="default: under the ledger")
    parser.add_argument(
        "--max-reconsume-times",
        type=int,
        metavar="N",
        help="retries before a message is given up (the group's --retry-max-times; 16 for a new group)",
    )
    delays = parser.add_mutually_exclusive_group()
    delays.add_argument(
        "--retry-delays",
        metavar="10s,30s,...",
        help="delay of each retry in turn (RocketMQ's: 10s 30s 1m ... 2h)",
    )
    delays.add_argument(
        "--retry-backoff",
        metavar="1s..10m",
        help="delays that double from the first to the last, each drawn from none to all of it (jitter)",
    )
    parser.add_argument("--tags", default="*", metavar="EXPR", help="tag filter: A || B")
    parser.add_argument(
        "--trigger", default="1s", type=duration_ms, metavar="TIME", help="batch interval (1s)"
    )
    parser.add_argument(
        "--max-batch", default=200_000, type=int, metavar="N", help="messages in one batch at most (200000)"
    )
    parser.add_argument(
        "--concurrency",
        default=20,
        type=_between(1, 1024),
        metavar="N",
        help="calls at a time on each core, for handlers of single messages (20)",
    )
    parser.add_argument(
        "--consume-timeout",
        default="15m",
        type=_lasting(1_000, 86_400_000),
        metavar="TIME",
        help="a call that takes longer is given up, its message comes again (15m)",
    )
    parser.add_argument(
        "--isolation",
        choices=("thread", "process"),
        default="thread",
        help="where the handler is called: in Spark's worker, or in a process that may hang and die "
        "(chosen by itself after a worker died)",
    )
    parser.add_argument(
        "--batch-time",
        default="10s",
        type=_lasting(1_000, 30_000),
        metavar="TIME",
        help="how long a batch should last: its size follows the handler's time (10s, at most 30s)",
    )
    parser.add_argument(
        "--stop-timeout",
        default="30s",
        type=_lasting(1_000, 3_600_000),
        metavar="TIME",
        help="how long a stop waits for the batch under way, which otherwise comes again (30s)",
    )
    parser.add_argument(
        "--mode",
        choices=("concurrent", "broadcast", "orderly"),
        default="concurrent",
        help="concurrent: a failed message is retried; broadcast: it is not",
    )
    parser.add_argument(
        "--from",
        choices=("earliest", "latest"),
        default="latest",
        dest="start",
        help="where a group begins that neither the ledger nor the broker knows (latest: at the end)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "record"),
        default="fail",
        help="what expired or is damaged: end with an error, or pass over it and record it in the ledger",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--available-now",
        action="store_true",
        help="handle what is there now, retries that are due included, then end: for schedulers",
    )
    end.add_argument(
        "--until-idle",
        type=duration_ms,
        metavar="TIME",
        help="end when nothing was new, pending or due so long",
    )
    parser.add_argument(
        "--vectorised", choices=("auto", "yes", "no"), default="auto", help="handler of batches"
    )


def add_archive_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the archive."""
    parser.add_argument(
        "--topic", required=True, action="append", dest="topics", metavar="TOPIC", help="a topic; repeatable"
    )
    add_endpoint(parser)
    parser.add_argument("--path", metavar="STORE", help="read a store on this machine from its files")
    parser.add_argument(
        "--ledger", default="ledger", metavar="DIR", help="a directory, or catalog.schema (default: ledger)"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="default: under the ledger")
    parser.add_argument("--trigger", default="10s", type=duration_ms, metavar="TIME", help="interval (10s)")
    parser.add_argument("--once", action="store_true", help="land what is there now, then end")


def consume_settings(args: argparse.Namespace) -> ConsumeSettings:
    """Reads the arguments of a group.

    Raises:
        InvalidRequest: an option is wrong; NOT_IMPLEMENTED for the orderly mode.
    """
    from delta_tables.ledger import ledger_at
    from jobs.handler.invocation import HandlerHost
    from jobs.handler.loader import HandlerTarget
    from jobs.settings import ConsumeSettings
    from store_native.errors import from_code

    if args.mode == "orderly":
        raise from_code(
            "NOT_IMPLEMENTED", "orderly mode comes with a later release: use concurrent until then"
        )
    return ConsumeSettings(
        group=args.group,
        topics=tuple(dict.fromkeys(args.topics)),
        handler=HandlerTarget(args.handler, args.vectorised, (str(Path.cwd()),)),
        ledger=ledger_at(args.ledger),
        checkpoint=None if args.checkpoint is None else args.checkpoint.absolute(),
        endpoint=args.endpoint,
        path=None if args.path is None else str(Path(args.path).absolute()),
        tags=args.tags,
        start=args.start,
        max_reconsume_times=args.max_reconsume_times,
        retry_delays=args.retry_delays,
        retry_backoff=args.retry_backoff,
        trigger=f"{args.trigger} milliseconds",
        max_messages_per_batch=args.max_batch,
        mode=args.mode,
        available_now=args.available_now,
        on_data_loss=args.on_data_loss,
        until_idle_s=None if args.until_idle is None else args.until_idle / 1000,
        host=HandlerHost(args.concurrency, args.consume_timeout / 1000, args.isolation),
        batch_time_s=args.batch_time / 1000,
        stop_timeout_s=args.stop_timeout / 1000,
    )


def archive_settings(args: argparse.Namespace) -> ArchiveSettings:
    """Reads the arguments of the archive."""
    from delta_tables.ledger import ledger_at
    from jobs.archive import ArchiveSettings

    return ArchiveSettings(
        topics=tuple(dict.fromkeys(args.topics)),
        ledger=ledger_at(args.ledger),
        checkpoint=None if args.checkpoint is None else args.checkpoint.absolute(),
        endpoint=args.endpoint,
        path=None if args.path is None else str(Path(args.path).absolute()),
        trigger="availableNow" if args.once else f"{args.trigger} milliseconds",
    )


def duration_ms(text: str) -> int:
    """Reads a duration; a number without a unit is seconds (an argparse type).

    >>> duration_ms("2m"), duration_ms("10")
    (120000, 10000)
    """
    try:
        return parse_ms(text, bare="s")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _lasting(least_ms: int, most_ms: int) -> Callable[[str], int]:
    """A duration within bounds (an argparse type)."""

    def read(text: str) -> int:
        given = duration_ms(text)
        if not least_ms <= given <= most_ms:
            raise argparse.ArgumentTypeError(
                f"{text} lies outside {least_ms / 1000:g} s to {most_ms / 1000:g} s"
            )
        return given

    return read


def _between(least: int, most: int) -> Callable[[str], int]:
    """A whole number within bounds (an argparse type)."""

    def read(text: str) -> int:
        try:
            given = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not least <= given <= most:
            raise argparse.ArgumentTypeError(f"{given} lies outside {least} to {most}")
        return given

    return read
