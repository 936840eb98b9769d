"""``lakemq tail``: shows the messages of a topic, and with ``--follow`` the new ones as they come.

Owns the merging of queues into one stream of lines: history by store time, news by arrival. Followed
without a place to begin at, it shows the last messages first, as tail does. It is no consumer: it
belongs to no group and commits nothing.

Threads: the command's own; with ``--follow`` one more for each queue, which holds a long poll and hands on
what it brings.
"""

from __future__ import annotations

import argparse
import heapq
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from lakemq.cli import options
from lakemq.cli.missing_brokers import missing_brokers
from lakemq.cli.subparsers import Subparsers
from lakemq.client import Client, InvalidRequest, PullResult, QueueBounds, ReceivedMessage, Unavailable
from lakemq.client.endpoint import add_endpoint
from lakemq.client.tag_expression import refuse_illegal_tags
from lakemq.terminal import output

PULL = 256
WAIT_MS = 15_000
LAST = 10
"""Messages shown before the news."""
LOOK_BACK = 100_000
"""Offsets of a queue that are searched at most for the last messages with certain tags."""
_RECONNECT_S = 1.0

Bounds = tuple[Client, str | None, QueueBounds]
"""A queue, with its broker's client and, where there are several brokers, its name."""


def register(subparsers: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "tail",
        help="show the messages of a topic as they come",
        description="Show the messages of a topic. Without --follow it ends at the last one.",
    )
    parser.add_argument("topic", help="the topic")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--from",
        dest="start",
        type=options.place,
        metavar="PLACE",
        help=f"earliest, latest or {options.TIME_HELP} (default: earliest; with --follow see --lines)",
    )
    begin.add_argument(
        "--lines",
        "-n",
        dest="last",
        type=options.whole,
        metavar="N",
        help=f"begin with the last N messages; with --tags, with the last N among the last {LOOK_BACK:,} of "
        f"each queue (default: all; with --follow {LAST})",
    )
    parser.add_argument("--follow", "-f", action="store_true", help="wait for more, until Ctrl-C")
    parser.add_argument(
        "--tags", default="*", metavar="EXPR", help="only these tags: 'A || B' (default: %(default)s, all)"
    )
    parser.add_argument(
        "--max", type=options.positive, metavar="N", help="end after N messages (default: never)"
    )
    add_endpoint(parser)
    options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Prints messages until the end, the maximum or Ctrl-C; returns 1 when some were damaged."""
    with options.connect(args) as client:
        queues = _queues(client, args.topic)
    # A long poll holds its connection: one for each queue.
    with options.connect(args, pool_size=len(queues.found) + 1) as client:
        bounds = [
            (client if name is None else client.broker(name), name, queue) for name, queue in queues.found
        ]
        for asked, _, held in bounds[:1]:
            refuse_illegal_tags(asked, args.topic, held.queue_id, args.tags)
        reader = TopicReader(args.topic, args.tags)
        last = LAST if args.follow and args.start is None and args.last is None else args.last
        if last is None:
            messages = reader.history(bounds, args.start or "earliest")
        else:
            messages = reader.last(bounds, last)
        if args.follow:
            messages = _chained(messages, reader)
        of_several = any(name is not None for name, _ in queues.found)
        for message in islice(messages, args.max):
            print(_line(message, args.format, of_several), flush=args.follow)
    return 1 if reader.damaged or queues.left_out else 0


@dataclass(slots=True)
class _Queues:
    """The queues of a topic with their broker's name, None for the only broker; how many brokers are away."""

    found: list[tuple[str | None, QueueBounds]]
    left_out: int = 0


def _queues(client: Client, topic: str) -> _Queues:
    """Looks which queues there are; a broker that is away is named and left out, while another one answers.

    Raises:
        LakeMQError: No broker has the topic, or none of those that have it answers.
    """
    if not client.is_cluster():
        return _Queues([(None, queue) for queue in client.queues(topic)])
    brokers = client.brokers(topic)
    missing = missing_brokers(client, topic, brokers)
    if not brokers and missing:
        raise Unavailable("SERVICE_NOT_AVAILABLE", "; ".join(missing))
    client.topic(topic)
    # Name servers may not have heard of a topic that was made a moment ago: whoever has it says so.
    asked = brokers or client.brokers()
    queues = _Queues([])
    for what in missing:
        print(f"lakemq: left out: {what}", file=sys.stderr)
        queues.left_out += 1
    for name, broker in asked.items():
        try:
            queues.found += [(name, queue) for queue in broker.queues(topic)]
        except InvalidRequest as error:
            if brokers or error.code != "TOPIC_NOT_EXIST":
                raise
        except Unavailable as error:
            if queues.left_out + 1 == len(asked) + len(missing):
                raise
            print(f"lakemq: left out: {error}", file=sys.stderr)
            queues.left_out += 1
    return queues


def _chained(history: Iterator[ReceivedMessage], reader: TopicReader) -> Iterator[ReceivedMessage]:
    yield from history
    yield from reader.news()


def _line(message: ReceivedMessage, form: str, of_several: bool) -> str:
    if form == "json":
        return output.as_json(message.to_json(), indent=None)
    return output.message_line(message, with_broker=of_several)


@dataclass(slots=True)
class _Cursor:
    client: Client
    broker_name: str | None
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"queue {self.queue_id}" + (f" of {self.broker_name}" if self.broker_name else "")


class TopicReader:
    """Reads all queues of one topic.

    Args:
        topic: The topic.
        tags: The tag expression.

    Attributes:
        damaged: How many messages the broker skipped because their stored bytes fail their checksum.
    """

    def __init__(self, topic: str, tags: str) -> None:
        self.damaged = 0
        self._topic = topic
        self._tags = tags
        self._cursors: list[_Cursor] = []
        self._ended = threading.Event()

    def history(self, bounds: Sequence[Bounds], start: str | int) -> Iterator[ReceivedMessage]:
        """Yields what the queues hold up to the given bounds, ordered by store time."""
        self._cursors = [
            _Cursor(client, name, b.queue_id, self._first(client, b, start)) for client, name, b in bounds
        ]
        ends = [b.confirmed_offset for _, _, b in bounds]
        streams = [self._until(cursor, end) for cursor, end in zip(self._cursors, ends, strict=True)]
        return heapq.merge(*streams, key=_by_store_time)

    def last(self, bounds: Sequence[Bounds], count: int) -> Iterator[ReceivedMessage]:
        """Yields the last ``count`` messages before the given bounds, ordered by store time."""
        found: list[ReceivedMessage] = []
        self._cursors = []
        for client, name, held in bounds:
            found += self._last_of(client, name, held, count)
            self._cursors.append(_Cursor(client, name, held.queue_id, held.confirmed_offset))
        found.sort(key=_by_store_time)
        return iter(found[-count:] if count else ())

    def _last_of(
        self, client: Client, name: str | None, bounds: QueueBounds, count: int
    ) -> list[ReceivedMessage]:
        """Looks for a queue's last messages in growing steps back from its end."""
        found: list[ReceivedMessage] = []
        end = bounds.confirmed_offset
        lowest = max(bounds.min_offset, end - LOOK_BACK)
        step = count
        while end > lowest and len(found) < count:
            begin = max(lowest, end - step)
            found = [*self._until(_Cursor(client, name, bounds.queue_id, begin), end), *found]
            end, step = begin, step * 4
        return found[-count:] if count else []

    def news(self) -> Iterator[ReceivedMessage]:
        """Yields messages after the history, for ever, as the broker's long polls bring them."""
        arrived: queue.SimpleQueue[PullResult | Exception] = queue.SimpleQueue()
        for cursor in self._cursors:
            # Daemons: a long poll in flight must not hold up the end of the program.
            threading.Thread(target=self._follow, args=(cursor, arrived), daemon=True).start()
        try:
            while True:
                news = arrived.get()
                if isinstance(news, Exception):
                    raise news
                yield from news.messages
        finally:
            self._ended.set()

    def _first(self, client: Client, bounds: QueueBounds, start: str | int) -> int:
        if start == "earliest":
            return bounds.min_offset
        if start == "latest":
            return bounds.confirmed_offset
        return client.offset_by_time(self._topic, bounds.queue_id, int(start))

    def _until(self, cursor: _Cursor, end: int) -> Iterator[ReceivedMessage]:
        while cursor.offset < end:
            result = cursor.client.pull(
                self._topic,
                cursor.queue_id,
                cursor.offset,
                max=min(PULL, end - cursor.offset),
                tags=self._tags,
            )
            if result.next_offset <= cursor.offset:
                return  # the queue ends before the bounds said (the topic was made again)
            self._pass(cursor, result)
            yield from result.messages

    def _follow(self, cursor: _Cursor, arrived: queue.SimpleQueue[PullResult | Exception]) -> None:
        announced = False
        while not self._ended.is_set():
            try:
                result = cursor.client.pull(
                    self._topic, cursor.queue_id, cursor.offset, max=PULL, wait_ms=WAIT_MS, tags=self._tags
                )
            except Unavailable as error:
                if not announced:
                    print(f"lakemq: {error}; waiting for the broker", file=sys.stderr)
                announced = True
                self._ended.wait(_RECONNECT_S)
                continue
            except Exception as error:  # noqa: BLE001 - raised again by the reading thread
                arrived.put(error)
                return
            announced = False
            self._pass(cursor, result)
            if result.messages:
                arrived.put(result)

    def _pass(self, cursor: _Cursor, result: PullResult) -> None:
        """Goes on behind a pull; says on stderr what it lacks, instead of skipping it in silence."""
        where = f"lakemq: {self._topic} {cursor}"
        if result.status == "OFFSET_ILLEGAL":
            gone = f"{where} has no offset {cursor.offset} any more, going on at {result.next_offset}"
            print(gone, file=sys.stderr)
        for start, end in result.damaged:
            self.damaged += end - start
            print(f"{where}: offsets [{start}, {end}) are damaged in the store, left out", file=sys.stderr)
        cursor.offset = result.next_offset


def _by_store_time(message: ReceivedMessage) -> tuple[int, int]:
    return message.store_timestamp, message.physical_offset
