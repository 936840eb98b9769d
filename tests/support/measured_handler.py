"""A group whose handler was measured before, so that its first batch is as large as a test needs it.

Owns the measure that `jobs.group.batch_size` would have left beside the group's checkpoint.
"""

from __future__ import annotations

from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.settings import ConsumeSettings
from structured_streaming.source import batch_bound


def as_measured(settings: ConsumeSettings, *, rows: int) -> ConsumeSettings:
    """Leaves the measure of an earlier run.

    Args:
        settings: of the group, which has no checkpoint yet.
        rows: The bound of its first batch, which should last ten seconds: what half a second of that is, one
            task handles.

    Returns:
        The settings.
    """
    bound_file = StreamCheckpoint(settings.checkpoint_of("group")).bound_file
    batch_bound.write(bound_file, rows, settings.handler.target)
    return settings
