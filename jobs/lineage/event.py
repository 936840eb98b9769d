"""What became of a run, and OpenLineage's event of it.

Owns the facets that an event has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from jobs.lineage.datasets import Dataset
from jobs.lineage.environment import ParentRun

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.facet_v2 import DatasetFacet, OutputDatasetFacet, RunFacet

State = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]


@dataclass(frozen=True)
class LineageJob:
    """A job, of which there are runs.

    Attributes:
        namespace, name: what identifies it.
        kind: `CONSUMER_GROUP` or `ARCHIVE`.
        is_streaming: whether a run goes on until it is stopped.
    """

    namespace: str
    name: str
    kind: str
    is_streaming: bool


@dataclass(frozen=True)
class Written:
    """A dataset a run writes.

    Attributes:
        dataset: the dataset.
        rows: written since the run began; None where nobody counts them.
    """

    dataset: Dataset
    rows: int | None = None


@dataclass(frozen=True)
class RunState:
    """A run at one moment.

    Attributes:
        state: what it came to.
        at: when.
        run_id: a UUID.
        job: whose run it is.
        inputs: what it reads, as far as it is known.
        outputs: what it writes.
        spark_version: of the session.
        version: of this package.
        parent: what started it.
        failure: why it failed.
    """

    state: State
    at: datetime
    run_id: str
    job: LineageJob
    inputs: Sequence[Dataset]
    outputs: Sequence[Written]
    spark_version: str
    version: str
    parent: ParentRun | None = None
    failure: str | None = None


def as_event(run: RunState) -> RunEvent:
    """Puts it as OpenLineage has it; needs its package."""
    from openlineage.client.event_v2 import Job, Run, RunEvent
    from openlineage.client.event_v2 import RunState as EventType
    from openlineage.client.facet_v2 import (
        error_message_run,
        job_type_job,
        parent_run,
        processing_engine_run,
    )

    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            run.spark_version, "spark", run.version
        )
    }
    if run.parent is not None:
        facets["parent"] = parent_run.ParentRunFacet(
            parent_run.Run(run.parent.run_id), parent_run.Job(run.parent.namespace, run.parent.job)
        )
    if run.failure is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(run.failure, "PYTHON")
    processing = "STREAMING" if run.job.is_streaming else "BATCH"
    kind = job_type_job.JobTypeJobFacet(processing, "LAKEMQ", run.job.kind)
    return RunEvent(
        eventTime=run.at.isoformat(),
        producer=f"urn:lakemq:{run.version}",
        eventType=EventType(run.state),
        run=Run(run.run_id, facets),
        job=Job(run.job.namespace, run.job.name, {"jobType": kind}),
        inputs=[_read(each) for each in run.inputs],
        outputs=[_written(each) for each in run.outputs],
    )


def _read(dataset: Dataset) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(dataset.namespace, dataset.name, facets=_names(dataset))


def _written(written: Written) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    counted: dict[str, OutputDatasetFacet] = {}
    if written.rows is not None:
        counted["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=written.rows
        )
    dataset = written.dataset
    return OutputDataset(dataset.namespace, dataset.name, counted, facets=_names(dataset))


def _names(dataset: Dataset) -> dict[str, DatasetFacet]:
    if dataset.table is None:
        return {}
    from openlineage.client.facet_v2 import symlinks_dataset

    catalog, _, name = dataset.table.partition(".")
    identifier = symlinks_dataset.Identifier(catalog, name, "TABLE")
    return {"symlinks": symlinks_dataset.SymlinksDatasetFacet([identifier])}
