"""A record of a store that nobody owns is damaged.

Owns where its body's bytes are.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from tests.support.stores import open_store

FILE_BYTES = 64 << 20
"""Of a log file, as tests' brokers have it."""
_IN_THE_BODY = 120


def damage(store_path: Path, topic: str, offset: int) -> None:
    """Overwrites bytes of the body, of 40 or more, of a message of queue 0."""
    opened = open_store(store_path, commitlog_file_size=FILE_BYTES, consumequeue_file_entries=30_000)
    with contextlib.closing(opened) as store:
        (found,) = json.loads(store.read_json(topic, 0, offset, max_messages=1).messages)
    where = found["physical_offset"]
    with (store_path / "commitlog" / f"{where - where % FILE_BYTES:020d}").open("r+b") as file:
        file.seek(where % FILE_BYTES + _IN_THE_BODY)
        file.write(b"damage")
