"""``lakemq produce``: posts messages from a file, from standard input, or one from the command line."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import BufferedIOBase
from pathlib import Path
from typing import cast

from lakemq.cli import options
from lakemq.cli.subparsers import Subparsers
from lakemq.client import Message
from lakemq.client.compression import COMPRESS_ABOVE_BYTES, COMPRESSIONS
from lakemq.client.endpoint import add_endpoint
from lakemq.terminal import output
from lakemq.terminal.failure import WrongUsage
from lakemq.terminal.progress_bar import Progress
from lakemq.upload import bulk, ndjson
from lakemq.upload.named_fields import LOOKED_AT

BATCH = 1_000
BATCH_BYTES = 1 << 20

_EXAMPLES = """\
A line is a message object of the API ({"body": "...", "keys": ["17"], "tags": "created"}) or any JSON
value, which becomes the body; blank lines are passed over. A batch is stored whole or not at all.

  lakemq produce orders --input orders.ndjson --key-field id --tag-field state
  tail -f app.log | lakemq produce logs --as text
  lakemq produce orders --body '{"id": 17}' --key 17 --tag created
"""


_MEANS = {
    "SLAVE_NOT_AVAILABLE": ": no slave has them, and nobody reads them before one has",
    "FLUSH_SLAVE_TIMEOUT": ": no slave had them in time, and nobody reads them before one has",
}
"""Statuses of what is stored, where it matters to who sends."""


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "produce",
        help="post messages from a file or standard input",
        description="Post messages to a topic.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", help="the topic; one that does not exist is made where the broker does so")
    parser.add_argument(
        "--input",
        default="-",
        metavar="FILE.ndjson",
        help="NDJSON file (default: %(default)s, standard input)",
    )
    parser.add_argument(
        "--as",
        dest="meaning",
        choices=ndjson.MEANINGS,
        default="auto",
        help="what a line is (default: %(default)s)",
    )
    parser.add_argument(
        "--key-field",
        action="append",
        default=[],
        metavar="FIELD",
        help="a field of the body to find it by (may be repeated); one that no line has, or none of "
        f"the first {LOOKED_AT:,}, is refused, and so is a --tag-field; lines wait until each was in one",
    )
    parser.add_argument("--tag-field", metavar="FIELD", help="the field of the body that becomes the tag")
    parser.add_argument(
        "--batch",
        type=options.positive,
        default=BATCH,
        metavar="N",
        help="messages a request at most (default: %(default)s)",
    )
    parser.add_argument(
        "--connections",
        type=options.positive,
        default=1,
        metavar="N",
        help="requests in flight; 1 keeps the order of the input (default: %(default)s)",
    )
    parser.add_argument(
        "--compression",
        choices=COMPRESSIONS,
        default="none",
        help=f"of requests of more than {COMPRESS_ABOVE_BYTES:,} bytes on their way; what is stored is the "
        "same (default: %(default)s)",
    )
    one = parser.add_argument_group("one message")
    one.add_argument("--body", metavar="TEXT", help="the body, instead of a file")
    one.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="a key to find it by (may be repeated)"
    )
    one.add_argument("--tag", metavar="TAG", help="its tag")
    one.add_argument(
        "--delay-level",
        type=options.whole,
        default=0,
        metavar="N",
        help="deliver it later: 1 is 1s, 2 is 5s, 3 is 10s ... as the broker has them, its last above that "
        "(default: %(default)s, now)",
    )
    add_endpoint(parser)
    options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Posts; returns 0 when everything was acknowledged."""
    if "." in args.topic and Path(args.topic).is_file():  # no topic's name has a dot
        raise WrongUsage(f"{args.topic} is a file, not a topic: lakemq produce TOPIC --input {args.topic}")
    if args.body is not None:
        if args.key_field or args.tag_field or args.meaning != "auto" or args.input != "-":
            raise WrongUsage(
                "--input, --as, --key-field and --tag-field are for lines; with --body: --key, --tag"
            )
        return _post_one(args)
    if args.key or args.tag or args.delay_level:
        raise WrongUsage(
            "--key, --tag and --delay-level go with --body; for lines use --key-field, --tag-field"
        )
    rule = ndjson.LineRule(args.meaning, tuple(args.key_field), args.tag_field)
    with (
        options.connect(args, pool_size=args.connections, compression=args.compression) as client,
        _opened(args.input) as source,
        Progress(f"to {args.topic}") as progress,
    ):
        batches = ndjson.batches(source, rule, max_count=args.batch, max_bytes=BATCH_BYTES)
        stored = 0

        def on_acknowledged(count: int) -> None:
            nonlocal stored
            stored += count
            progress.add(count)

        try:
            posted = bulk.post(
                client, args.topic, batches, connections=args.connections, on_acknowledged=on_acknowledged
            )
        except KeyboardInterrupt:
            print(f"lakemq: interrupted, {stored:,} messages were acknowledged", file=sys.stderr)
            raise
    _print(args, posted)
    return 0 if posted.acknowledged == posted.posted else 1


def _post_one(args: argparse.Namespace) -> int:
    message = Message(args.body, tags=args.tag, keys=args.key, delay_level=args.delay_level)
    with options.connect(args, compression=args.compression) as client:
        result = client.send_message(args.topic, message, idempotency_key=uuid.uuid4().hex, in_turn=True)
        of_several = client.is_routed
    if args.format == "json":
        shown = asdict(result)
        if not shown.pop("repeated_elsewhere"):
            print(output.as_json(shown))
        else:
            print(output.as_json({**shown, "repeated_elsewhere": True}))
    else:
        where = output.queue_place(result, with_broker=of_several)
        if result.scheduled:  # that is its place in the schedule
            where = f"{result.broker_name} delayed" if of_several else "delayed"
        print(f"{result.status} {result.message_id} {result.topic} {where}")
        if result.repeated_elsewhere:
            print("an attempt at another broker got no answer: it may be stored there too", file=sys.stderr)
    return 0


@contextmanager
def _opened(name: str) -> Iterator[BufferedIOBase]:
    if name == "-":
        if sys.stdin.isatty():
            print("lakemq: a message a line; Ctrl-D ends the input", file=sys.stderr)
        yield cast(BufferedIOBase, sys.stdin.buffer)
        return
    with Path(name).open("rb") as source:
        yield source


def _print(args: argparse.Namespace, posted: bulk.Posted) -> None:
    if args.format == "json":
        summary = {
            "topic": args.topic,
            "posted": posted.posted,
            "acknowledged": posted.acknowledged,
            "seconds": round(posted.seconds, 3),
            "statuses": dict(posted.statuses),
        }
        if posted.brokers:
            summary["brokers"] = dict(sorted(posted.brokers.items()))
        print(output.as_json(summary))
        return
    print(
        f"{posted.acknowledged:,} of {posted.posted:,} messages stored in {args.topic}"
        f" in {posted.seconds:.1f} s ({posted.rate:,.0f} a second)"
    )
    if posted.brokers:
        print(", ".join(f"{count:,} at {name}" for name, count in sorted(posted.brokers.items())))
    for status, count in posted.statuses.items():
        if status != "SEND_OK":
            print(
                f"{count} requests are stored, but the broker says {status}{_MEANS.get(status, '')}",
                file=sys.stderr,
            )
