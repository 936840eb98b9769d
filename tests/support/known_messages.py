"""The 10,000 messages of the compatibility tests: written through the native store, read back from anywhere.

Owns what is written (3 topics, tags, keys, properties, batches, delayed ones, more than one commitlog file)
and the form readings are compared in. `python -m tests.support.known_messages DIR` writes a store and then
kills itself with SIGKILL.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from store_native import Store
from tests.support.stores import open_store

TOPICS: Final = ("CompatA", "CompatB", "CompatC")
MESSAGES: Final = 10_000
SINGLES: Final = 4000
BATCH: Final = 100
DELIVERED: Final = frozenset(range(1, SINGLES, 1000))
"""Numbers of the messages delayed by level 1 (1 s): delivered before the store closes."""
PENDING: Final = frozenset(range(2, SINGLES, 1000))
"""Numbers of the messages delayed by level 3 (10 s): still waiting when the store closes."""
GROUP: Final = "compat-group"
OFFSETS: Final = [(TOPICS[0], 0, 5), (TOPICS[0], 1, 7)]

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


class Content(NamedTuple):
    """What must be equal for every reader."""

    number: int
    body: bytes
    tags: str | None
    keys: str
    colour: str


def content(number: int) -> Content:
    """Returns the message of this number."""
    body = f"message {number} \u00e4\u4e2d\U0001f600 " + "y" * (number % 3000)
    tags = f"tag-{number % 7}" if number % 5 else None
    return Content(number, body.encode(), tags, f"key-{number} shared-{number % 100}", "gr\u00fcn")


def write(path: Path) -> Store:
    """Writes the messages and returns the open store: all dispatched, PENDING not yet delivered."""
    store = open_store(path, flush="async")
    for number in range(SINGLES):
        message = content(number)
        store.append_message(
            TOPICS[number % len(TOPICS)],
            message.body,
            tags=message.tags,
            keys=message.keys.split(),
            properties=[("number", str(number)), ("colour", message.colour)],
            delay_level=1 if number in DELIVERED else 3 if number in PENDING else 0,
        )
    for first in range(SINGLES, MESSAGES, BATCH):
        rows = [_json(content(number)) for number in range(first, first + BATCH)]
        topic = TOPICS[first // BATCH % len(TOPICS)]
        if first % (2 * BATCH):
            store.append_json(topic, json.dumps({"messages": rows}).encode())
        else:
            store.append_ndjson(topic, "\n".join(json.dumps(row) for row in rows).encode())
    end = max(store.put_group(GROUP), store.commit_offsets(GROUP, OFFSETS))
    assert store.wait_flushed(end, 10_000)
    assert store.wait_dispatched(end, 10_000)
    return store


def wait_delivered(store: Store, timeout_s: float = 15.0) -> None:
    """Waits until the messages of level 1 lie in their topics.

    Raises:
        TimeoutError: They do not.
    """
    deadline = time.monotonic() + timeout_s
    wanted = MESSAGES - len(PENDING)
    while sum(high for _low, high in bounds(store).values()) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{bounds(store)}: fewer than {wanted} messages")
        store.wait_dispatched(store.watermarks()[0] + 1, 20)


def read(store: Any) -> dict[Place, Content]:
    """Reads every message of the topics through a Store or a Reader."""
    found: dict[Place, Content] = {}
    for topic in TOPICS:
        for queue_id, offset, high, _confirmed in store.queues(topic):
            while offset < high:
                piece = store.read_json(topic, queue_id, offset, max_messages=1000, max_bytes=8 << 20)
                for row in json.loads(piece.messages):
                    found[topic, queue_id, row["queue_offset"]] = from_json(row)
                assert piece.next_offset > offset, (topic, queue_id, offset, piece.status)
                offset = piece.next_offset
    return found


def from_json(row: dict[str, Any]) -> Content:
    """Returns the content of a message in the HTTP API's JSON."""
    body = row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])
    properties = row["properties"]
    return Content(
        int(properties["number"]), body, row["tags"], " ".join(row["keys"]), properties.get("colour", "")
    )


def from_tool(rows: Iterable[dict[str, Any]]) -> dict[Place, Content]:
    """Returns what RocketTool's `dump` printed."""
    return {
        (row["topic"], row["queue_id"], row["queue_offset"]): Content(
            int(row["properties"]["number"]),
            base64.b64decode(row["body"]),
            row["tags"],
            row["keys"],
            row["properties"].get("colour", ""),
        )
        for row in rows
    }


def bounds(store: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns (minimum, maximum) offset of every queue of the topics."""
    return {(topic, row[0]): (row[1], row[2]) for topic in TOPICS for row in store.queues(topic)}


def _json(message: Content) -> dict[str, Any]:
    row: dict[str, Any] = {
        "body": message.body.decode(),
        "keys": message.keys.split(),
        "properties": {"number": str(message.number), "colour": message.colour},
    }
    return row | ({"tags": message.tags} if message.tags else {})


if __name__ == "__main__":
    store = write(Path(sys.argv[1]))  # kept: a store without a reference closes itself
    os.kill(os.getpid(), signal.SIGKILL)
