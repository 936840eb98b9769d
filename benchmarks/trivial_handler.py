"""P9's handler: every message is done. A module of its own, because Spark's workers import it."""

from __future__ import annotations

import pyarrow as pa

from lakemq.handler import vectorised


@vectorised
def acknowledge(batch: pa.RecordBatch) -> None:
    """Acknowledges a whole batch."""
