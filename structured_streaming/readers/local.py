"""Reads a store on this host by mapping its files, beside the broker or without one.

Owns the use of the native Reader. One reader per store and process is kept open, because a Spark worker runs
many tasks. Implements readers/base.py.

Invariants: read-only, without a lock, never beyond the confirmed offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from store_native import Reader
from store_native.errors import LakeMQError
from structured_streaming.offsets import Bounds, EpochOffset
from structured_streaming.readers.base import Chunk

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20

_open: dict[tuple[str, int, int], LocalReader] = {}


class LocalReader:
    """Reads the store in a directory of this host.

    Args:
        path: The store's directory.

    Raises:
        LakeMQError: There is no store.
    """

    ahead = False

    def __init__(self, path: str) -> None:
        self._path = path
        self.slave_answers = 0
        self._open()
        self.broker_name: str = self._reader.broker_name
        self.store_id: str = self._reader.store_id

    def is_current(self) -> bool:
        return self._reader.is_current()

    def epoch(self) -> int:
        return int(self._reader.epoch)

    def topics(self) -> dict[str, str]:
        return {topic: self._reader.topic_id(topic) for topic in self._reader.topics()}

    def topic_id(self, topic: str) -> str | None:
        try:
            return str(self._reader.topic_id(topic))
        except LakeMQError as error:
            if error.code == "TOPIC_NOT_EXIST":
                return None
            raise

    def bounds(self, topic: str) -> dict[int, Bounds]:
        settled, queues = self._reader_of(topic).queue_epochs(topic)
        # An epoch that begins behind what is shown is a slave's that was promoted a moment ago.
        self.slave_answers += not settled
        return {
            queue_id: Bounds(low, confirmed, tuple(EpochOffset(*at) for at in epochs))
            for queue_id, low, _, confirmed, epochs in queues
        }

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return int(self._reader_of(topic).offset_by_time(topic, queue_id, timestamp))

    def read(
        self, topic: str, queue_id: int, offset: int, end: int, columns: Sequence[str], tags: str
    ) -> Chunk:
        part = self._reader_of(topic).read_arrow(
            topic,
            queue_id,
            offset,
            end_offset=end,
            max_messages=BATCH_ROWS,
            max_bytes=BATCH_BYTES,
            tags=tags,
            columns=list(columns),
        )
        batch = pa.record_batch(part.batch) if part.count else None
        damaged = tuple(part.damaged)
        return Chunk(
            part.status,
            batch,
            part.next_offset,
            part.min_offset,
            part.max_offset,
            damaged,
            self.epoch(),
        )

    def _reader_of(self, topic: str) -> Reader:
        """Returns a reader that has not mapped an earlier topic of this name.

        A native reader keeps the queues it opened; those of a topic deleted and made again are
        other files at the same path.
        """
        now = self.topic_id(topic)
        if self._topic_ids.setdefault(topic, now) != now:
            self._open()
        return self._reader

    def _open(self) -> None:
        self._reader = Reader(self._path)
        self._topic_ids: dict[str, str | None] = dict(self.topics())


def is_here(path: str) -> bool:
    """Says whether a store's directory is on this host."""
    return (Path(path) / "commitlog").is_dir()


def local_reader(path: str) -> LocalReader:
    """Returns this process's reader of a store, opened once.

    The directory's identity is part of the key: a store deleted and made again at the same path is
    another store. One that was replaced in its directory is opened anew: a slave's becomes its master's so.
    """
    status = Path(path).stat()
    key = (path, status.st_dev, status.st_ino)
    if key not in _open or not _open[key].is_current():
        _open[key] = LocalReader(path)
    return _open[key]
