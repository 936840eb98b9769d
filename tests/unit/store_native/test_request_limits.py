"""What a request may hold: more where a group sends back what was taken once."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from store_native import validate_tags
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
    with closing(open_store(tmp_path, commitlog_file_size=128 << 20, max_message_bytes=96 << 20)) as store:
        with pytest.raises(InvalidRequest, match="REQUEST_TOO_LARGE"):
            store.append_arrow("t", request)
        for topic in ("%RETRY%g", "%DLQ%g"):
            assert store.append_arrow(topic, request).count == 1


def test_views_of_one_text_are_no_way_around_the_limit(tmp_path: Path) -> None:
    """A request of a kilobyte, compressed, may be a thousand messages of a MiB."""
    sink = pa.BufferOutputStream()
    text = b"x" * (1 << 20)
    views = struct.pack("<i4sii", len(text), text[:4], 0, 0) * 100
    buffers = [None, pa.py_buffer(views), pa.py_buffer(text)]
    rows = pa.record_batch({"body": pa.Array.from_buffers(pa.binary_view(), 100, buffers)})
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    request = sink.getvalue().to_pybytes()
    assert len(request) < 2 << 20
    with closing(open_store(tmp_path, commitlog_file_size=256 << 20)) as store:
        for topic in ("t", "%RETRY%g", "%DLQ%g"):
            with pytest.raises(InvalidRequest, match="REQUEST_TOO_LARGE"):
                store.append_arrow(topic, request)


def test_a_group_sends_back_a_message_with_tags_that_nobody_can_ask_for(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        with pytest.raises(InvalidRequest, match="MESSAGE_ILLEGAL: no reader could ask for it") as refused:
            store.append_message("t", b"x", tags="a || b")
        assert refused.value.context["pointer"] == "/tags"
        for topic in ("%RETRY%g", "%DLQ%g"):
            assert store.append_message(topic, b"x", tags="a || b").count == 1


@pytest.mark.parametrize("expression", ["a &&", "a | b", "* || a", "||"])
def test_an_expression_that_nothing_passes_is_refused(expression: str) -> None:
    validate_tags("a || b ||")
    validate_tags("*")
    with pytest.raises(InvalidRequest, match="FILTER_ILLEGAL"):
        validate_tags(expression)
