"""A stream's checkpoint directory, as far as the jobs look into it.

Owns three things: reading which offsets Spark planned for a batch (written before the batch runs, so a
repeated batch has the same range), the start file, which remembers where a stream began, and clearing
away what a driver left that ended while Spark planned the first batch. Never breaks: a stream's
beginning is decided once per checkpoint; without that a driver killed in its first batch could begin
elsewhere the second time. Called by the group, retry, dead_letter and archive jobs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from structured_streaming.offsets import Offsets

_START_FILE = "lakemq-start.json"
NO_BATCH = -1


class StreamCheckpoint:
    """One stream's checkpoint on a local or mounted path."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

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

    def planned_end(self, batch_id: int) -> Offsets | None:
        """The lakemq source's end offsets of a batch, None when the log does not hold it."""
        try:
            text = (self.directory / "offsets" / str(batch_id)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        # version line, metadata line, then one line per source; these streams have one source
        return Offsets.from_json(json.loads(text.splitlines()[2]))

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
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as out:
            json.dump(decided, out)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
        return decided

    def _newest(self, log: str) -> int:
        names = (entry.name for entry in self._entries(log))
        return max((int(name) for name in names if name.isdigit()), default=NO_BATCH)

    def _entries(self, log: str) -> list[Path]:
        try:
            return list((self.directory / log).iterdir())
        except FileNotFoundError:
            return []
