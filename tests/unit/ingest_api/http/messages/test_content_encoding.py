"""Content-Encoding: whole streams come back, broken ones and bombs do not."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ingest_api.http.messages.content_encoding import expand
from store_native.errors import InvalidRequest

LIMIT = 1 << 20


def encoded(coding: str, data: bytes) -> bytes:
    return gzip.compress(data) if coding == "gzip" else zstandard.ZstdCompressor().compress(data)


@given(data=st.binary(max_size=5_000), coding=st.sampled_from(["gzip", "zstd"]))
def test_what_was_compressed_comes_back(data: bytes, coding: str) -> None:
    assert expand(encoded(coding, data), coding, LIMIT) == data


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_several_members_come_back_joined(coding: str) -> None:
    assert expand(encoded(coding, b"one") + encoded(coding, b"two"), coding, LIMIT) == b"onetwo"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_exactly_the_limit_is_taken_and_one_byte_more_is_not(coding: str) -> None:
    assert len(expand(encoded(coding, bytes(LIMIT)), coding, LIMIT)) == LIMIT
    with pytest.raises(InvalidRequest) as refused:
        expand(encoded(coding, bytes(LIMIT + 1)), coding, LIMIT)
    assert refused.value.code == "REQUEST_TOO_LARGE"
    assert refused.value.context["limit"] == LIMIT


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_is_refused_without_being_expanded(coding: str) -> None:
    bomb = encoded(coding, bytes(256 << 20))
    tracemalloc.start()
    with pytest.raises(InvalidRequest):
        expand(bomb, coding, LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_cut_stream_is_malformed_at_every_length(coding: str) -> None:
    whole = encoded(coding, bytes(range(256)) * 20)
    for length in range(1, len(whole)):
        with pytest.raises(InvalidRequest) as refused:
            expand(whole[:length], coding, LIMIT)
        assert refused.value.code == "MALFORMED_BODY"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_garbage_is_malformed(coding: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        expand(b"this was never compressed", coding, LIMIT)
    assert refused.value.code == "MALFORMED_BODY"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_million_empty_members_are_refused_early(coding: str) -> None:
    with pytest.raises(InvalidRequest, match="members"):
        expand(encoded(coding, b"") * 50_000, coding, LIMIT)


def test_a_zlib_stream_is_no_gzip() -> None:
    with pytest.raises(InvalidRequest):
        expand(zlib.compress(b"x"), "gzip", LIMIT)
