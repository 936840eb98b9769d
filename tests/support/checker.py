"""Compares what was acknowledged with what can be read back, and says what is lost, repeated or invented.

Owns the judgement only: it takes journals (tests/support/journal.py) and readings. A reading comes from one
of three independent paths: HTTP pull, Spark, or the plain file parser. A message's identity is the first
word of its body.

Invariants: an empty report means every rule below held for every message.
"""

from __future__ import annotations

import http.client
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tests.support.journal import Sent
from tests.support.plain_log import Log, read_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PULL_SIZE = 1000


class Found(NamedTuple):
    """One message as it was read back."""

    topic: str
    queue_id: int
    queue_offset: int
    id: str


@dataclass(slots=True)
class Report:
    """What is wrong with one reading; all lists empty = nothing.

    Attributes:
        lost: acknowledged, not there.
        misplaced: acknowledged, but not at the queue and offset of the acknowledgement.
        duplicated: there more than once.
        reordered: a queue holds a writer's messages in another order than it sent them.
        phantom: there, but never sent, or refused.
        torn: a request of which only a part is there.
        holes: queue offsets that are missing or used twice.
    """

    path: str
    lost: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0

    KINDS = ("lost", "misplaced", "duplicated", "reordered", "phantom", "torn", "holes")

    @property
    def clean(self) -> bool:
        """Tells whether every rule held."""
        return not any(getattr(self, kind) for kind in self.KINDS)

    def __str__(self) -> str:
        head = f"{self.path}: {self.read} read, {self.acknowledged} acknowledged, {self.unknown} unknown"
        wrong = [(kind, getattr(self, kind)) for kind in self.KINDS]
        return head + "".join(f"; {len(items)} {kind}: {items[:5]}" for kind, items in wrong if items)


def check(path: str, sent: Sequence[Sent], found: Iterable[Found]) -> Report:
    """Judges one reading.

    Args:
        path: the reading's name in the report.
        sent: every request of every writer.
        found: everything that can be read of the topics the writers used.
    """
    report = Report(path)
    places: dict[str, list[Found]] = defaultdict(list)
    queues: dict[tuple[str, int], list[Found]] = defaultdict(list)
    for message in found:
        places[message.id].append(message)
        queues[message.topic, message.queue_id].append(message)
        report.read += 1
    _check_requests(report, sent, places)
    _check_phantoms(report, sent, places)
    order = {
        id_: (request.writer, request.number, at) for request in sent for at, id_ in enumerate(request.ids)
    }
    for name, messages in queues.items():
        _check_queue(report, f"{name[0]}/{name[1]}", messages, order)
    return report


def identity(body: bytes | str) -> str:
    """Returns the identity a writer put at the start of a body."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    return text.split(" ", 1)[0]


def read_plain(store: Path, topics: Iterable[str], log: Log | None = None) -> list[Found]:
    """Reads topics with the plain file parser.

    Raises:
        AssertionError: The log itself is damaged; nothing about single messages can be said then.
    """
    log = log or read_log(store)
    assert not log.damage, f"damaged log: {log.damage[:3]}"
    wanted = set(topics)
    return [
        Found(record.topic, record.queue_id, record.queue_offset, identity(record.body))
        for record in log.records
        if record.topic in wanted
    ]


def read_http(port: int, topics: Iterable[str], host: str = "127.0.0.1") -> list[Found]:
    """Reads topics from a broker by pulling every queue from its minimum to its maximum offset.

    Raises:
        AssertionError: The broker answers with something else than messages.
    """
    connection = http.client.HTTPConnection(host, port, timeout=30)
    found: list[Found] = []
    try:
        for topic in topics:
            base = f"/api/v1/topics/{quote(topic, safe='')}/queues"
            for queue in _get(connection, base):
                found += _pull_queue(connection, base, topic, queue)
    finally:
        connection.close()
    return found


def read_spark(spark: SparkSession, topics: Sequence[str], **options: str) -> list[Found]:
    """Reads topics with Spark's batch source; options are `path` or `endpoint`."""
    frame = spark.read.format("lakemq").options(subscribe=",".join(topics), **options).load()
    rows = frame.select("topic", "queue_id", "queue_offset", "body").collect()
    return [Found(row.topic, row.queue_id, row.queue_offset, identity(bytes(row.body))) for row in rows]


def _pull_queue(
    connection: http.client.HTTPConnection, base: str, topic: str, queue: dict[str, int]
) -> list[Found]:
    offset = queue["min_offset"]
    found: list[Found] = []
    while offset < queue["max_offset"]:
        query = f"?offset={offset}&max={PULL_SIZE}&max_bytes={4 << 20}"
        answer = _get(connection, f"{base}/{queue['queue_id']}/messages{query}")
        assert answer["status"] == "FOUND", answer["status"]
        for message in answer["messages"]:
            found.append(
                Found(topic, message["queue_id"], message["queue_offset"], identity(message["body"]))
            )
        assert answer["next_offset"] > offset, "the pull does not advance"
        offset = answer["next_offset"]
    return found


def _get(connection: http.client.HTTPConnection, path: str) -> Any:
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, (path, response.status, body[:300])
    return json.loads(body)


def _check_requests(report: Report, sent: Sequence[Sent], places: dict[str, list[Found]]) -> None:
    for request in sent:
        there = [id_ for id_ in request.ids if places.get(id_)]
        report.duplicated += [id_ for id_ in there if len(places[id_]) > 1]
        if request.outcome == "ok":
            report.acknowledged += len(request.ids)
            report.lost += [id_ for id_ in request.ids if not places.get(id_)]
            report.misplaced += _misplaced(request, places)
        elif request.outcome == "unknown":
            report.unknown += len(request.ids)
        if 0 < len(there) < len(request.ids):
            report.torn.append(f"{request.writer}#{request.number}: {len(there)} of {len(request.ids)}")


def _misplaced(request: Sent, places: dict[str, list[Found]]) -> list[str]:
    """Compares positions: a request fills each queue it names from the first offset upwards, in order."""
    wanted = {(queue, first + step) for queue, first, count in request.placed for step in range(count)}
    if not wanted:
        return []
    got = [(place.queue_id, place.queue_offset) for id_ in request.ids for place in places.get(id_, [])[:1]]
    wrong = [f"{request.writer}#{request.number} at {at}" for at in got if at not in wanted]
    by_queue: dict[int, list[int]] = defaultdict(list)
    for queue_id, offset in got:
        by_queue[queue_id].append(offset)
    if any(offsets != sorted(offsets) for offsets in by_queue.values()):
        wrong.append(f"{request.writer}#{request.number}: order inside the request")
    return wrong


def _check_phantoms(report: Report, sent: Sequence[Sent], places: dict[str, list[Found]]) -> None:
    known: dict[str, Sent] = {id_: request for request in sent for id_ in request.ids}
    for id_ in places:
        request = known.get(id_)
        if request is None or request.outcome == "failed":
            report.phantom.append(id_)


def _check_queue(
    report: Report, name: str, messages: list[Found], order: dict[str, tuple[str, int, int]]
) -> None:
    messages.sort(key=lambda message: message.queue_offset)
    offsets = [message.queue_offset for message in messages]
    if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
        report.holes.append(name)
    newest: dict[str, tuple[int, int]] = {}
    for message in messages:
        writer, number, at = order.get(message.id, ("", 0, 0))
        if not writer:
            continue
        if newest.get(writer, (-1, -1)) > (number, at):
            report.reordered.append(f"{message.id} in {name}")
        newest[writer] = max(newest.get(writer, (-1, -1)), (number, at))
