"""The options of a group's handler on a command line, and what they say.

Owns their names and defaults.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lakemq.argument_types import between, lasting, memory_bytes
from store_native.errors import InvalidRequest

if TYPE_CHECKING:
    from jobs.frames.frame_handler import FrameHandler
    from jobs.handler.invocation import HandlerHost
    from jobs.handler.loader import HandlerTarget


def add_handler_options(parser: argparse.ArgumentParser) -> None:
    """Adds which handler is called, and where and how."""
    handler = parser.add_mutually_exclusive_group(required=True)
    handler.add_argument(
        "--handler", metavar="MODULE:FUNCTION", help="called with each message, or with batches"
    )
    handler.add_argument(
        "--sql",
        type=Path,
        metavar="FILE",
        help="a SELECT in a file: its rows are those of the view `batch`, with a column verdict",
    )
    parser.add_argument(
        "--concurrency",
        default=20,
        type=between(1, 1024),
        metavar="N",
        help="calls at a time on each core, for handlers of single messages, 1 to 1024 "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--consume-timeout",
        default="15m",
        type=lasting(1_000, 86_400_000),
        metavar="DURATION",
        help="a call that takes longer is given up, its message comes again; 1s to 24h "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--isolation",
        choices=("thread", "process"),
        help="where the handler is called: in Spark's worker, or in a process that may hang and die, which "
        "is chosen by itself after a worker died (default: thread; with --handler-memory process)",
    )
    parser.add_argument(
        "--handler-memory",
        type=memory_bytes,
        metavar="SIZE",
        help="what that process may have in memory, such as 512m or 2g, 128m at the least: it is killed "
        "above, and the message that needs it is found (default: any)",
    )
    parser.add_argument(
        "--vectorised",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the handler takes batches; auto: as it says itself (default: %(default)s)",
    )


def handler_of(args: argparse.Namespace) -> HandlerTarget | FrameHandler:
    """Reads which handler is called.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, there is no such file, or the name is none.
    """
    from jobs.frames.frame_handler import sql_handler
    from jobs.handler.loader import HandlerTarget

    if args.sql is not None:
        if not args.sql.is_file():
            raise InvalidRequest("ARGUMENT_ILLEGAL", f"--sql: there is no file {args.sql}")
        return sql_handler(args.sql)
    if not all(args.handler.partition(":")):
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"--handler is MODULE:FUNCTION, not {args.handler!r}")
    return HandlerTarget(args.handler, args.vectorised, (str(Path.cwd()),))


def host_of(args: argparse.Namespace) -> HandlerHost:
    """Reads where and how it is called.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, two options exclude each other.
    """
    from jobs.handler.invocation import HandlerHost, Isolation

    if args.isolation == "thread" and args.handler_memory is not None:
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL", "--handler-memory bounds a process of the handler's own: --isolation process"
        )
    isolation: Isolation = args.isolation or ("thread" if args.handler_memory is None else "process")
    return HandlerHost(args.concurrency, args.consume_timeout / 1000, isolation, args.handler_memory)
