"""The arguments of the jobs: what `lakemq consume`, `lakemq archive` and a cluster's tasks take.

Owns their names, defaults and how they become settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.handler_arguments import add_handler_options, handler_of, host_of
from jobs.redelivery.backoff import Backoff
from lakemq.argument_types import DURATION_HELP, between, duration_ms, lasting, positive
from lakemq.client.endpoint import add_endpoint, chosen_endpoints
from lakemq.client.transport import normal_endpoint
from lakemq.duration import parse_ms
from store_native.errors import InvalidRequest
from store_native.places import why_no_directory

if TYPE_CHECKING:
    from delta_tables.ledger.location import LedgerLocation
    from delta_tables.user_tables.user_table import UserTable
    from jobs.archive import ArchiveSettings
    from jobs.frames.frame_handler import FrameHandler
    from jobs.settings import ConsumeSettings


MOST_RECONSUME_TIMES = 2**31 - 1
"""Attempts have 32 bits, in the ledger as in the log."""


def add_consume_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a consumer group and of its handler."""
    parser.epilog = DURATION_HELP
    parser.add_argument("--group", required=True, help="the consumer group")
    add_handler_options(parser)
    add_group_options(parser)


def add_group_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a consumer group, whatever its handler is."""
    topics = parser.add_mutually_exclusive_group(required=True)
    _add_topics(topics)
    topics.add_argument(
        "--topic-pattern",
        metavar="REGEX",
        help="every topic whose whole name matches, also one that is made later: that one is read from its "
        "first message",
    )
    _add_places(parser)
    parser.add_argument(
        "--max-reconsume-times",
        type=between(0, MOST_RECONSUME_TIMES),
        metavar="N",
        help="retries before a message is given up (default: as the group was created; 16 for a new one; in "
        "orderly mode none is given up)",
    )
    delays = parser.add_mutually_exclusive_group()
    delays.add_argument(
        "--retry-delays",
        type=_delays,
        metavar="DURATION,...",
        help="delay of each retry in turn, the last one repeats; delay levels of the broker such as "
        "10s,30s,1m (default: RocketMQ's, 10s 30s 1m ... 2h; in orderly mode the shortest level, 1s)",
    )
    delays.add_argument(
        "--retry-backoff",
        type=_range_of_delays,
        metavar="DURATION..DURATION",
        help="delays that double from the first to the last, each drawn from none to all of it (jitter), "
        "such as 1s..10m",
    )
    parser.add_argument(
        "--tags", default="*", metavar="EXPR", help="tag filter: A || B (default: %(default)s, all)"
    )
    parser.add_argument(
        "--send-to",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic that verdicts may send messages to (may be repeated)",
    )
    parser.add_argument(
        "--write-to",
        action="append",
        default=[],
        type=_named_table,
        metavar="NAME=PLACE",
        help="a Delta table that is there (a directory, a URL or catalog.schema.table), and the name by "
        "which verdicts write rows to it (may be repeated)",
    )
    _add_trigger(parser, "1s")
    parser.add_argument(
        "--max-batch",
        default=200_000,
        type=positive,
        metavar="N",
        help="messages in one batch at most (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-time",
        default="10s",
        type=lasting(1_000, 30_000),
        metavar="DURATION",
        help="how long a batch should last: its size follows the handler's time; 1s to 30s "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--stop-timeout",
        default="30s",
        type=lasting(1_000, 3_600_000),
        metavar="DURATION",
        help="how long a stop waits for the batch under way, which otherwise comes again; 1s to 1h "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--mode",
        choices=("concurrent", "orderly", "broadcast"),
        default="concurrent",
        help="concurrent: a failed message is retried; orderly: messages of a queue, or of a sharding key in "
        "it, are handled in its order, one after the other, and what follows a failed one waits; broadcast: "
        "a failed message is not retried (default: %(default)s)",
    )
    parser.add_argument(
        "--max-parked",
        type=positive,
        metavar="N",
        help="orderly mode: so many messages of a queue wait in the ledger for a failed one before the queue "
        "is read no further (default: 10000)",
    )
    parser.add_argument(
        "--from",
        choices=("earliest", "latest"),
        default="latest",
        dest="start",
        help="where a group begins that neither the ledger nor the broker knows "
        "(default: %(default)s, at the end)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "record"),
        default="fail",
        help="what expired or is damaged: end with an error, or pass over it and record it in the ledger "
        "(default: %(default)s)",
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
        metavar="DURATION",
        help="end when nothing was new, pending or due so long; delayed messages of any topic are waited for",
    )


def add_archive_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the archive."""
    parser.epilog = DURATION_HELP
    _add_topics(parser, required=True)
    _add_places(parser)
    pace = parser.add_mutually_exclusive_group()
    _add_trigger(pace, "10s")
    pace.add_argument("--once", action="store_true", help="land what is there now, then end")
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "skip"),
        default="fail",
        help="what expired or is damaged: end with an error, or pass over it, which leaves a gap in the "
        "offsets of its queue (default: %(default)s)",
    )


def _add_topics(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        dest="topics",
        default=[],
        required=required,
        metavar="TOPIC",
        help="a topic (may be repeated)",
    )


def _add_places(parser: argparse.ArgumentParser) -> None:
    add_endpoint(parser)
    parser.add_argument("--path", metavar="STORE", help="read a store on this machine from its files")
    parser.add_argument(
        "--ledger",
        default="ledger",
        metavar="DIR",
        help="a directory, or catalog.schema (default: %(default)s)",
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="Spark's checkpoints (default: under the ledger)"
    )


def _add_trigger(parser: argparse._ActionsContainer, default: str) -> None:
    parser.add_argument(
        "--trigger",
        default=default,
        type=duration_ms,
        metavar="DURATION",
        help="time from the begin of a batch to that of the next (default: %(default)s)",
    )


def consume_settings(args: argparse.Namespace, function: FrameHandler | None = None) -> ConsumeSettings:
    """Reads the arguments of a group.

    Args:
        args: those of `add_consume_arguments`; with a function `group` and those of `add_group_options`.
        function: in the place of a handler that the arguments name.

    Raises:
        InvalidRequest: an option is wrong.
    """
    from jobs.handler.invocation import DEFAULT_HOST
    from jobs.settings import MAX_PARKED, ConsumeSettings

    _check_places(args)
    if args.max_parked is not None and args.mode != "orderly":
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"--max-parked: nothing is parked in {args.mode} mode")
    return ConsumeSettings(
        group=args.group,
        topics=tuple(dict.fromkeys(args.topics)),
        handler=handler_of(args) if function is None else function,
        ledger=_ledger(args.ledger),
        checkpoint=None if args.checkpoint is None else args.checkpoint.absolute(),
        endpoint=args.endpoint,
        path=None if args.path is None else str(Path(args.path).absolute()),
        topic_pattern=args.topic_pattern,
        tags=args.tags,
        send_to=tuple(dict.fromkeys(args.send_to)),
        write_to=_tables(args.write_to),
        start=args.start,
        max_reconsume_times=args.max_reconsume_times,
        retry_delays=args.retry_delays,
        retry_backoff=args.retry_backoff,
        trigger=f"{args.trigger} milliseconds",
        max_messages_per_batch=args.max_batch,
        mode=args.mode,
        max_parked=MAX_PARKED if args.max_parked is None else args.max_parked,
        available_now=args.available_now,
        on_data_loss=args.on_data_loss,
        until_idle_s=None if args.until_idle is None else args.until_idle / 1000,
        host=host_of(args) if function is None else DEFAULT_HOST,
        batch_time_s=args.batch_time / 1000,
        stop_timeout_s=args.stop_timeout / 1000,
    )


def _tables(given: Sequence[tuple[str, str]]) -> tuple[UserTable, ...]:
    from delta_tables.user_tables import table_at

    return tuple(table_at(name, place) for name, place in given)


def _ledger(text: str) -> LedgerLocation:
    from delta_tables.ledger import ledger_at

    try:
        return ledger_at(text)
    except InvalidRequest as error:
        raise InvalidRequest(error.code, f"--ledger: {error.detail}") from error


def archive_settings(args: argparse.Namespace) -> ArchiveSettings:
    """Reads the arguments of the archive."""
    from jobs.archive import ArchiveSettings
    from jobs.settings import check_topic

    _check_places(args)
    for topic in args.topics:
        check_topic(topic)
    return ArchiveSettings(
        topics=tuple(dict.fromkeys(args.topics)),
        ledger=_ledger(args.ledger),
        checkpoint=None if args.checkpoint is None else args.checkpoint.absolute(),
        endpoint=args.endpoint,
        path=None if args.path is None else str(Path(args.path).absolute()),
        trigger="availableNow" if args.once else f"{args.trigger} milliseconds",
        on_data_loss=args.on_data_loss,
    )


def _check_places(args: argparse.Namespace) -> None:
    """Refuses what the client and the source refuse, before there is a Spark.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    for endpoint in chosen_endpoints(args.endpoint) if args.endpoint else ():
        try:
            normal_endpoint(endpoint)
        except InvalidRequest as error:
            raise InvalidRequest(error.code, f"--endpoint: {error.detail}") from error
    if args.checkpoint is not None and (why := why_no_directory(args.checkpoint)):
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"--checkpoint: {why}")
    if args.path is not None and not Path(args.path).is_dir():
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"--path: there is no store at {args.path}")
    if args.path is not None and len(chosen_endpoints(args.endpoint)) > 1:
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL",
            "--path is one broker's store: give that broker's address as --endpoint, or no --path",
        )


def _delays(text: str) -> str:
    """Checks the form of ``--retry-delays``; which levels there are, the broker knows."""
    for delay in text.replace(",", " ").split() or [text]:
        try:
            parse_ms(delay)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _named_table(text: str) -> tuple[str, str]:
    """Checks the form of ``--write-to``."""
    name, _, place = text.partition("=")
    if not name or not place:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PLACE")
    return name, place


def _range_of_delays(text: str) -> str:
    """Checks the form of ``--retry-backoff``."""
    try:
        Backoff.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
