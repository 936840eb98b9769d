"""How many messages a job wants in its next batch.

Owns the file behind the option ``batchBoundFile``: ``maxOffsetsPerTrigger`` is fixed when a query starts,
this is looked at before each batch.

Invariants: the file only ever lowers the bound, it is whole or not there, and what cannot be read counts as
none.

Processes: the driver; the job's process writes, the source's reads.
"""

from __future__ import annotations

import json
from pathlib import Path


def write(file: Path, rows: int, of: str = "") -> None:
    """Bounds the batches from the next one on.

    Args:
        file: The file.
        rows: The bound.
        of: Whose measure it is.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"rows": rows, "of": of}), encoding="utf-8")
    draft.replace(file)


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


def at_most(file: str | None, most: int | None) -> int | None:
    """The lower of a trigger's bound and the file's; None without either."""
    bound = None if file is None else read(Path(file))
    return min((rows for rows in (most, bound) if rows is not None), default=None)
