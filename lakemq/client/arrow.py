"""Arrow streams to and from the broker.

Owns the only place of the client that imports pyarrow, and does so when called: the command line and small
producers start without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakemq.client.results import ArrowPull
from lakemq.client.transport import NOT_OF_THE_SHAPE, Answer

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_TYPE = "application/vnd.apache.arrow.stream"


def encode(data: bytes | pa.Table | pa.RecordBatch) -> bytes:
    """Returns an Arrow IPC stream: the bytes given, or those of a table or batch."""
    if isinstance(data, bytes):
        return data
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def sharding_keys(stream: bytes) -> Sequence[str]:
    """Returns the sharding keys of an Arrow IPC stream's rows; what is none is the broker's to refuse."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(stream) as reader:
            if "sharding_key" not in reader.schema.names:
                return ()
            keys = reader.read_all().column("sharding_key").unique().to_pylist()
    except (pa.ArrowException, OSError):
        return ()
    return [key for key in keys if isinstance(key, str)]


def decode_pull(answer: Answer) -> ArrowPull:
    """Builds the result of a pull from the answer's stream and its ``X-LakeMQ-*`` headers.

    Raises:
        InvalidRequest: MALFORMED_BODY; see :meth:`Answer.read`.
    """
    import pyarrow as pa

    try:
        pull = _pull_of(answer.headers, answer.body)
        pull.batch.validate()
        said = int(answer.headers["X-LakeMQ-Count"])
    except (pa.ArrowException, MemoryError, OSError, *NOT_OF_THE_SHAPE):
        raise answer.malformed() from None
    if pull.batch.num_rows != said:
        raise answer.malformed()  # cut between two batches, where pyarrow takes the end for one
    return replace(pull, from_slave=answer.from_slave)


def _pull_of(headers: Mapping[str, str], body: bytes) -> ArrowPull:
    import pyarrow as pa

    with pa.ipc.open_stream(body) as reader:
        batches = list(reader)
        schema = reader.schema
    if len(batches) == 1:
        batch = batches[0]
    else:
        joined = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
        batch = joined[0] if joined else pa.RecordBatch.from_pylist([], schema=schema)
    damaged = json.loads(headers.get("X-LakeMQ-Damaged") or "[]")
    return ArrowPull(
        batch=batch,
        next_offset=int(headers["X-LakeMQ-Next-Offset"]),
        min_offset=int(headers["X-LakeMQ-Min-Offset"]),
        max_offset=int(headers["X-LakeMQ-Max-Offset"]),
        status=headers["X-LakeMQ-Status"],
        damaged=tuple((int(start), int(end)) for start, end in damaged),
        epoch=int(headers.get("X-LakeMQ-Epoch") or 0),
    )
