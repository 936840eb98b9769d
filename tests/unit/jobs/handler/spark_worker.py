"""A Python worker as Spark forks one: it runs a task, and may die under it."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from jobs.group.outcomes import OutcomeTask

_LONGEST_S = 60.0
_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["jobs.group.outcomes"])


def run_in_worker(task: OutcomeTask, batch: pa.RecordBatch) -> list[dict[str, Any]] | None:
    """The rows that a task makes of a batch; None when its worker died."""
    ours, theirs = _fork.Pipe(duplex=False)
    worker = _fork.Process(target=_work, args=(theirs, task, batch), daemon=True)
    worker.start()
    theirs.close()
    try:
        with ours:
            assert ours.poll(_LONGEST_S), "the worker neither answers nor ends"
            rows: list[dict[str, Any]] = ours.recv()
            return rows
    except EOFError:
        return None
    finally:
        worker.join()


def _work(pipe: Connection[Any, Any], task: OutcomeTask, batch: pa.RecordBatch) -> None:
    pipe.send([row for rows in task(iter([batch])) for row in rows.to_pylist()])
