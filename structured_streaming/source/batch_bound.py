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


def write(file: Path, rows: int) -> None:
    """Bounds the batches from the next one on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"rows": rows}), encoding="utf-8")
    draft.replace(file)


def read(file: Path) -> int | None:
    """The bound, None without one."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return rows if isinstance(rows, int) and rows > 0 else None


def at_most(file: str | None, most: int | None) -> int | None:
    """The lower of a trigger's bound and the file's; None without either."""
    bound = None if file is None else read(Path(file))
    return min((rows for rows in (most, bound) if rows is not None), default=None)
