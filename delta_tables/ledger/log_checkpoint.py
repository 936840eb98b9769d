"""Checkpoints of a table's log, on a path.

Owns when one is due behind a commit of ours. `deltalake` makes it as a part of the commit otherwise, and says
that the commit failed where only the checkpoint did.

Invariants: one is made of each `delta.checkpointInterval` versions, as Spark makes them; the log before it is
deleted as far as `delta.logRetentionDuration` lets it, unless the table says that nobody does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable

_INTERVAL = "delta.checkpointInterval"
_CLEANUP = "delta.enableExpiredLogCleanup"
_SPARKS_INTERVAL = 10
_NEVER = -1


def checkpoint_if_due(delta: DeltaTable, directory: Path) -> bool:
    """Makes a checkpoint where the last one is far behind.

    Args:
        delta: the table as it is.
        directory: the table's.

    Returns:
        Whether one was made.
    """
    properties = delta.metadata().configuration
    every = int(properties.get(_INTERVAL, _SPARKS_INTERVAL))
    if delta.version() - _last(directory) < every:
        return False
    delta.create_checkpoint()
    if properties.get(_CLEANUP, "true").lower() != "false":
        delta.cleanup_metadata()
    return True


def _last(directory: Path) -> int:
    """The version of the newest checkpoint; it may be older where nobody noted that one."""
    try:
        said = json.loads((directory / "_delta_log" / "_last_checkpoint").read_bytes())
        return int(said["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return _NEVER
