"""A stream's checkpoint directory, as far as the jobs look into it.

Owns three things: the count of batches Spark has planned and finished, the files that remember where a
stream began and how far it is, and clearing away what a driver left that ended while Spark planned the
first batch.

Invariants: a stream's beginning is decided once per checkpoint, and on the disk before anybody goes by it;
without that a driver killed in its first batch could begin elsewhere the second time. Nothing depends on what
Spark writes into its own files, but for a checkpoint of a release that remembered no end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from store_native.durable_files import DISK, FileDisk, replace_file
from structured_streaming.cluster_offsets import ClusterOffsets

_START_FILE = "lakemq-start.json"
_PLAN_FILE = "lakemq-plan.json"
_REACHED_FILE = "lakemq-reached.json"
_BOUND_FILE = "lakemq-batch-bound.json"
_QUARANTINE_FILE = "lakemq-quarantine.json"
NO_BATCH = -1


class StreamCheckpoint:
    """One stream's checkpoint on a local or mounted path.

    Args:
        disk: Brings the files to the disk.
    """

    def __init__(self, directory: Path, disk: FileDisk = DISK) -> None:
        self.directory = directory
        self._disk = disk

    def prepare(self) -> str:
        """The directory as the option checkpointLocation takes it, ready for a start.

        Spark drafts its entry for batch 0 beside the offset log's entries and then renames it. A stop or a
        kill between the two leaves the draft, and Spark refuses to start on a log that holds anything but
        no entry (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). A draft says nothing: its batch never ran.
        Called by the checkpoint's only user, before its query starts.
        """
        if self.last_planned() == NO_BATCH:
            for draft in self._entries("offsets"):
                draft.unlink()
        return str(self.directory)

    def last_planned(self) -> int:
        """The newest batch with an entry in the offset log, NO_BATCH for a new checkpoint."""
        return self._newest("offsets")

    def last_committed(self) -> int:
        """The newest batch Spark has finished, NO_BATCH when none."""
        return self._newest("commits")

    def query_id(self) -> str | None:
        """The id of the stream's query, which Spark notes before it plans; None where it cannot be read."""
        try:
            found = json.loads((self.directory / "metadata").read_text(encoding="utf-8"))["id"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return found if isinstance(found, str) else None

    @property
    def plan_file(self) -> Path:
        """Where the stream's source writes the range of the batch it is about to run."""
        return self.directory / _PLAN_FILE

    @property
    def bound_file(self) -> Path:
        """Where the job writes how many messages it wants in a batch."""
        return self.directory / _BOUND_FILE

    @property
    def quarantine_file(self) -> Path:
        """Where the job notes that its handler has a process of its own."""
        return self.directory / _QUARANTINE_FILE

    def reach(self, batch_id: int, end: ClusterOffsets) -> None:
        """Remembers the end of a batch that is done, so that a restart knows how far the stream is."""
        self._write(_REACHED_FILE, {"batch_id": batch_id, "end": end.to_json()})

    def reached(self) -> ClusterOffsets | None:
        """The end of the newest batch that was done, None for a new checkpoint."""
        committed = self.last_committed()
        try:
            remembered = json.loads((self.directory / _REACHED_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return self._end_in_sparks_log(committed)
        if remembered["batch_id"] < committed:
            return self._end_in_sparks_log(committed)
        return ClusterOffsets.from_json(remembered["end"])

    def _end_in_sparks_log(self, batch_id: int) -> ClusterOffsets | None:
        """A batch's end as releases found it that remembered none: in the first format of Spark's log."""
        try:
            lines = (self.directory / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        # version line, metadata line, then one line per source; these streams have one source
        return (
            ClusterOffsets.from_json(json.loads(lines[2])) if lines[:1] == ["v1"] and len(lines) > 2 else None
        )

    def start(self, decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Where the stream begins: decided at the first call, remembered ever after.

        Args:
            decide: says where a stream without a checkpoint begins, as a JSON object.
        """
        file = self.directory / _START_FILE
        if file.exists():
            remembered: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return remembered
        decided = decide()
        self._write(_START_FILE, decided)
        return decided

    def start_over(self, decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """As start, though the beginning was decided before; no batch may have been planned since."""
        assert self.last_planned() == NO_BATCH, "a stream that has begun stays where it began"
        decided = decide()
        self._write(_START_FILE, decided)
        return decided

    def planned_end(self) -> ClusterOffsets | None:
        """The end of the newest batch Spark planned, where that can be read."""
        return self._end_in_sparks_log(self.last_planned())

    def _write(self, name: str, value: dict[str, Any]) -> None:
        replace_file(self.directory / name, json.dumps(value).encode(), self._disk)

    def _newest(self, log: str) -> int:
        names = (entry.name for entry in self._entries(log))
        return max((int(name) for name in names if name.isdigit()), default=NO_BATCH)

    def _entries(self, log: str) -> list[Path]:
        try:
            return list((self.directory / log).iterdir())
        except FileNotFoundError:
            return []
