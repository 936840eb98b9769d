"""Offsets that groups commit at a slave while its master is away.

Owns the file that keeps them, `lakemq/offsets-aside.json` in the store's directory, until a master has taken
them or said why not.

Invariants: what was kept is on the disk when :meth:`OffsetsAside.keep` returns; a kept offset is only ever
replaced by a larger one of the same topic; there are at most `MOST_OFFSETS`.

Threads: the event loop; the file is written on the read pool, one change at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest_api.broker.thread_pools import ReadPool
from store_native.durable_files import DISK, FileDisk, replace_file
from store_native.errors import Unavailable

log = logging.getLogger("lakemq.replication")

FILE = Path("lakemq", "offsets-aside.json")
VERSION = 1
MOST_OFFSETS = 100_000


@dataclass(frozen=True, slots=True)
class KeptOffset:
    """Where a group said it is in one queue.

    Attributes:
        topic_id: Of the topic's life in which it was said.
        offset: The next offset the group consumes.
        seen: What the group had committed as far as the slave knew; None: nothing.
    """

    topic: str
    topic_id: str
    queue_id: int
    offset: int
    seen: int | None

    def moves(self, committed: int | None) -> bool:
        """Says whether it moves a group that has committed so far, None being not at all.

        The larger offset wins, unless the group was moved back, or deleted, since: then nothing said before
        counts.
        """
        if committed is None or (self.seen is not None and committed < self.seen):
            return committed is None and self.seen is None
        return self.offset > committed


_Kept = dict[str, dict[tuple[str, int], KeptOffset]]


class OffsetsAside:
    """What groups committed here, a slave, and no master has yet.

    Args:
        store_path: The store's directory.
        disk: Runs the writing of the file.
        files: Brings the file to the disk.
    """

    def __init__(self, store_path: str | os.PathLike[str], disk: ReadPool, files: FileDisk = DISK) -> None:
        self._file = Path(store_path) / FILE
        self._disk = disk
        self._files = files
        self._changing = asyncio.Lock()
        self._kept = _load(self._file)

    def groups(self) -> list[str]:
        """Returns the groups of which something is kept."""
        return list(self._kept)

    def of(self, group: str) -> list[KeptOffset]:
        """Returns what is kept of a group."""
        return list(self._kept.get(group, {}).values())

    async def keep(self, group: str, offsets: Iterable[KeptOffset]) -> None:
        """Keeps offsets until a master has them.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE, too many are kept or the file cannot be written; nothing
                changed.
        """
        async with self._changing:
            own = dict(self._kept.get(group, {}))
            for kept in offsets:
                before = own.get((kept.topic, kept.queue_id))
                if before is None or before.topic_id != kept.topic_id:
                    own[kept.topic, kept.queue_id] = kept
                elif kept.offset > before.offset:
                    own[kept.topic, kept.queue_id] = replace(before, offset=kept.offset)
            await self._change({**self._kept, group: own})

    async def drop(self, group: str, offsets: Iterable[KeptOffset]) -> None:
        """Forgets offsets that a master took, or that count no more; larger ones kept since stay."""
        async with self._changing:
            own = dict(self._kept.get(group, {}))
            for kept in offsets:
                if own.get((kept.topic, kept.queue_id)) == kept:
                    del own[kept.topic, kept.queue_id]
            others = {name: held for name, held in self._kept.items() if name != group}
            await self._change({**others, group: own} if own else others)

    async def _change(self, kept: _Kept) -> None:
        if (count := sum(map(len, kept.values()))) > MOST_OFFSETS:
            detail = f"a slave keeps at most {MOST_OFFSETS} offsets for its master, this would be {count}"
            raise Unavailable("SERVICE_NOT_AVAILABLE", detail)
        if kept == self._kept:
            return
        try:
            await self._disk.run(_write, self._file, kept, self._files)
        except OSError as error:
            detail = f"{self._file}: {error.strerror or error}: offsets cannot be kept for the master"
            raise Unavailable("SERVICE_NOT_AVAILABLE", detail) from error
        self._kept = kept


def to_json(kept: KeptOffset) -> dict[str, Any]:
    """Returns the form in the file, and in what is offered to a master."""
    return {
        "topic": kept.topic,
        "topic_id": kept.topic_id,
        "queue_id": kept.queue_id,
        "offset": kept.offset,
        "seen": kept.seen,
    }


def _write(file: Path, kept: Mapping[str, Mapping[tuple[str, int], KeptOffset]], disk: FileDisk) -> None:
    groups = {group: [to_json(offset) for offset in own.values()] for group, own in kept.items()}
    replace_file(file, json.dumps({"v": VERSION, "groups": groups}).encode(), disk)


def _load(file: Path) -> _Kept:
    """Reads the file; one that is not readable is put aside, since a broker has to start without it."""
    try:
        said = json.loads(file.read_bytes())
        if said["v"] != VERSION:
            raise ValueError(f"its version {said['v']!r} is not known")
        kept: _Kept = {}
        for group, own in said["groups"].items():
            rows = [KeptOffset(**row) for row in own]
            kept[group] = {(row.topic, row.queue_id): row for row in rows}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        damaged = file.with_suffix(".damaged")
        file.replace(damaged)
        fields = {"file": str(damaged), "reason": str(error)}
        log.error("offsets kept for the master cannot be read and are put aside", extra={"fields": fields})
        return {}
    return kept
