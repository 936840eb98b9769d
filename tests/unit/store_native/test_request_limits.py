"""What one request may hold: more where a group sends back what was taken once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from store_native.errors import InvalidRequest
from tests.support.stores import open_store

LARGE = b"x" * (65 << 20)
"""More than the messages of a request take elsewhere."""


def test_a_group_sends_back_a_message_of_any_size_that_a_log_file_holds(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    rows = pa.record_batch({"body": pa.array([LARGE], pa.binary())})
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    request = sink.getvalue().to_pybytes()
    store = open_store(tmp_path, commitlog_file_size=128 << 20, max_message_bytes=96 << 20)
    try:
        with pytest.raises(InvalidRequest, match="REQUEST_TOO_LARGE"):
            store.append_arrow("t", request)
        for topic in ("%RETRY%g", "%DLQ%g"):
            assert store.append_arrow(topic, request).count == 1
    finally:
        store.close()
