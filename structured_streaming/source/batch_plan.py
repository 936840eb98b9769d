"""Begin and end of the batch a query is about to run, for a job that runs it by itself.

Owns the file behind the option ``planFile``. Spark's offset log says the same, but its form is Spark's own.

Invariants: the file holds the range Spark planned last, whole or not at all, and is taken once: a job that
finds none has not been given this batch's.

Processes: the driver; the source's process writes, the job's takes.
"""

from __future__ import annotations

import json
from pathlib import Path

from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Offsets


def write(file: Path, begin: Offsets | ClusterOffsets, end: Offsets | ClusterOffsets) -> None:
    """Replaces the plan; a batch that is planned again after a crash has the same."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"begin": begin.to_json(), "end": end.to_json()}), encoding="utf-8")
    draft.replace(file)


def take(file: Path) -> tuple[ClusterOffsets, ClusterOffsets] | None:
    """Returns begin and end of the batch planned last, None when it was taken already."""
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    file.unlink()
    return ClusterOffsets.from_json(plan["begin"]), ClusterOffsets.from_json(plan["end"])
