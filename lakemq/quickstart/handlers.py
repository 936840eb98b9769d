"""What the quick start's group does with its messages: it runs in Spark's Python workers.

Owns two vectorised handlers. A handler gets the batch's columns and answers one verdict a row; None is ACK.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.json as pj

from lakemq.handler import Verdict

_NEVER_DEPARTED = Verdict.retry(reason="the flight never departed")
_FLIGHT = pj.ParseOptions(
    explicit_schema=pa.schema([("dep_time", pa.int64())]), unexpected_field_behavior="ignore"
)


def arrived(batch: pa.RecordBatch) -> list[Verdict | None]:
    """Accepts a flight that departed; one that never did is tried again, in vain."""
    bodies: list[bytes] = batch.column("body").to_pylist()
    if not bodies:
        return []
    flights = pj.read_json(io.BytesIO(b"\n".join(bodies)), parse_options=_FLIGHT)
    departed = flights.column("dep_time").is_valid().to_pylist()
    return [None if flew else _NEVER_DEPARTED for flew in departed]


def accept(batch: pa.RecordBatch) -> list[Verdict | None]:
    """Accepts everything."""
    return [None] * batch.num_rows
