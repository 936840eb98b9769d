"""Begin and end of the batch a query is about to run, for a job that runs it by itself.

Owns the file behind the option ``planFile``. Spark's offset log says the same, but its form is Spark's own,
and it does not say which positions the broker has given a second time.

Invariants: the file holds the range Spark planned last, whole or not at all, and is taken once: a job that
finds none has not been given this batch's.

Processes: the driver; the source's process writes, the job's takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.source.data_loss import Loss


class Plan(NamedTuple):
    """A batch.

    Attributes:
        begin, end: What it covers.
        truncated: What the broker has given a second time.
    """

    begin: ClusterOffsets
    end: ClusterOffsets
    truncated: tuple[Loss, ...] = ()


def write(
    file: Path,
    begin: Offsets | ClusterOffsets,
    end: Offsets | ClusterOffsets,
    truncated: Iterable[Loss] = (),
) -> None:
    """Replaces the plan; a batch that is planned again after a crash has the same."""
    cut = [asdict(loss) for loss in truncated]
    plan = {"begin": begin.to_json(), "end": end.to_json(), "truncated": cut}
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(plan), encoding="utf-8")
    draft.replace(file)


def take(file: Path) -> Plan | None:
    """Returns the batch planned last, None when it was taken already."""
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    file.unlink()
    return Plan(
        ClusterOffsets.from_json(plan["begin"]),
        ClusterOffsets.from_json(plan["end"]),
        tuple(_loss(said) for said in plan["truncated"]),
    )


def _loss(said: dict[str, Any]) -> Loss:
    queue, epochs = said.pop("queue"), said.pop("epochs")
    return Loss(
        **said,
        queue=None if queue is None else MessageQueue(*queue),
        epochs=None if epochs is None else (epochs[0], epochs[1]),
    )
