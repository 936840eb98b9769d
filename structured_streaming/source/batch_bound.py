"""How many messages a job wants in its next batch, and of which queues none.

Owns the file behind the option ``batchBoundFile``: ``maxOffsetsPerTrigger`` is fixed when a query starts,
this is looked at before each batch. What pauses queues is in a file beside it.

Invariants: the files only ever lower the bound, they are whole or not there, and what cannot be read counts
as none.

Processes: the driver; the job's process writes, the source's reads.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from structured_streaming.offsets import MessageQueue


def write(file: Path, rows: int, of: str = "") -> None:
    """Bounds the batches from the next one on.

    Args:
        file: The file.
        rows: The bound.
        of: Whose measure it is.
    """
    _replace(file, {"rows": rows, "of": of})


def read(file: Path, of: str | None = None) -> int | None:
    """The bound; None without one, or when it is somebody else's measure than ``of``."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        rows, whose = found["rows"], found.get("of", "")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if of is not None and whose != of:
        return None
    return rows if isinstance(rows, int) and rows > 0 else None


def pause(file: Path, queues: Collection[tuple[str, str, int]]) -> None:
    """Leaves queues out of the batches from the next one on, in the place of those named before.

    Args:
        file: The file of the bound.
        queues: Topic, broker and number of each.
    """
    beside = _beside(file)
    if queues:
        _replace(beside, sorted(queues))
    else:
        beside.unlink(missing_ok=True)


def paused(file: str | None) -> frozenset[MessageQueue]:
    """The queues that are left out."""
    if file is None:
        return frozenset()
    try:
        found = json.loads(_beside(Path(file)).read_text(encoding="utf-8"))
        return frozenset(MessageQueue(*queue) for queue in found)
    except (OSError, ValueError, TypeError, RecursionError):
        return frozenset()


def without_paused(
    file: str | None, starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """The ends of a batch in which no paused queue moves."""
    left_out = paused(file)
    return {queue: starts[queue] if queue in left_out else end for queue, end in ends.items()}


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.stem}-paused.json")


def _replace(file: Path, content: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(file)


def at_most(file: str | None, most: int | None) -> int | None:
    """The lower of a trigger's bound and the file's; None without either."""
    bound = None if file is None else read(Path(file))
    return min((rows for rows in (most, bound) if rows is not None), default=None)
