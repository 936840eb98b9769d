"""How many messages a job wants in its next batch, and how far it reads which queues.

Owns the file behind the option ``batchBoundFile``: ``maxOffsetsPerTrigger`` is fixed when a query starts,
this is looked at before each batch. How far queues are read is in a file beside it.

Invariants: the files only ever lower the bound, they are whole or not there, and what cannot be read counts
as none.

Processes: the driver; the job's process writes, the source's reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def read_up_to(file: Path, ends: Mapping[MessageQueue, int], *, others_only_of: str | None = None) -> None:
    """Has queues read no further than some ends from the next batch on, in the place of those said before.

    Args:
        file: The file of the bound.
        ends: How far each queue is read; one that is behind its end already is paused.
        others_only_of: The only topic whose other queues are read, to their ends; None reads all others.
    """
    beside = _beside(file)
    if ends or others_only_of is not None:
        _replace(beside, {"ends": [[*queue, end] for queue, end in ends.items()], "others": others_only_of})
    else:
        beside.unlink(missing_ok=True)


def within_ends(
    file: str | None, starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """The ends of a batch in which no queue moves on beyond the end that was said."""
    said, others_only_of = ({}, None) if file is None else _ends_said(Path(file))

    def end_of(queue: MessageQueue) -> int:
        none = others_only_of is not None and others_only_of != queue.topic
        return max(starts[queue], min(ends[queue], said.get(queue, 0 if none else ends[queue])))

    return {queue: end_of(queue) for queue in ends}


def _ends_said(file: Path) -> tuple[dict[MessageQueue, int], str | None]:
    try:
        found = json.loads(_beside(file).read_text(encoding="utf-8"))
        return {MessageQueue(*queue): int(end) for *queue, end in found["ends"]}, found["others"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}, None


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.stem}-ends.json")


def _replace(file: Path, content: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(file)


def at_most(file: str | None, most: int | None) -> int | None:
    """The lower of a trigger's bound and the file's; None without either."""
    bound = None if file is None else read(Path(file))
    return min((rows for rows in (most, bound) if rows is not None), default=None)
