"""What a client compresses, and that each attempt of a call sends the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from ingest_api.http.messages.content_encoding import expand
from lakemq import Producer, aio
from lakemq.client import Client, InvalidRequest
from lakemq.client.compression import COMPRESS_ABOVE_BYTES, COMPRESSIONS, compressed
from lakemq.client.transport import Transport

CODINGS = [name for name in COMPRESSIONS if name != "none"]
NOBODY = "127.0.0.1:1"
ZEROS = bytes(COMPRESS_ABOVE_BYTES + 1)


class Wire:
    """Connections that note what each attempt sends, and answer as they are told."""

    def __init__(self, *statuses: int) -> None:
        self.sent: list[tuple[bytes, dict[str, str]]] = []
        self._statuses = list(statuses)

    def urlopen(self, method: str, url: str, *, body: bytes, headers: dict[str, str], **_: Any) -> Any:
        self.sent.append((body, headers))
        problem = b'{"code": "SYSTEM_BUSY", "detail": "later"}'
        return urllib3.HTTPResponse(
            problem, status=self._statuses.pop(0), headers={"Content-Type": "application/problem+json"}
        )

    def close(self) -> None:
        pass


@pytest.mark.parametrize("coding", CODINGS)
@given(unit=st.binary(min_size=1, max_size=50), size=st.integers(0, 3 * COMPRESS_ABOVE_BYTES))
def test_a_broker_gets_back_what_was_compressed(coding: str, unit: bytes, size: int) -> None:
    body = (unit * (size // len(unit) + 1))[:size]
    sent, headers = compressed(body, coding)
    if size <= COMPRESS_ABOVE_BYTES:
        assert (sent, headers) == (body, {})
    else:
        assert headers == {"Content-Encoding": coding}
        assert len(sent) < len(body)
        assert expand(sent, coding, size) == body
    assert compressed(body, coding) == (sent, headers), "a repeat is the same bytes"


@pytest.mark.parametrize("coding", CODINGS)
def test_what_does_not_become_smaller_is_sent_as_it_is(coding: str) -> None:
    body = random.Random(1).randbytes(2 * COMPRESS_ABOVE_BYTES)
    assert compressed(body, coding) == (body, {})


def test_nothing_is_compressed_unless_it_was_asked_for() -> None:
    assert compressed(ZEROS, "none") == (ZEROS, {})


@pytest.mark.parametrize("coding", CODINGS)
def test_each_attempt_of_a_send_is_the_same_compressed_request(coding: str) -> None:
    wire = Wire(503, 503)
    transport = _over(wire, coding)
    with pytest.raises(Exception, match="SYSTEM_BUSY"):
        transport.call("POST", "/x", body=ZEROS, stores=dict, idempotency_key="k", retries=1)
    first, second = wire.sent
    assert first == second
    assert (first[1]["Content-Encoding"], first[1]["Idempotency-Key"]) == (coding, "k")
    assert expand(first[0], coding, len(ZEROS)) == ZEROS


def test_only_what_stores_messages_is_compressed() -> None:
    wire = Wire(503)
    with pytest.raises(Exception, match="SYSTEM_BUSY"):
        _over(wire, "gzip").call("PUT", "/x", body=ZEROS, retries=0)
    assert wire.sent == [(ZEROS, {})]


@pytest.mark.parametrize("make", [Client, Producer, aio.Client, aio.Producer])
def test_a_compression_that_there_is_not_is_refused(make: Any) -> None:
    with pytest.raises(InvalidRequest, match="compression: is 'lz4', it is one of none, gzip, zstd"):
        make(NOBODY, compression="lz4")


def test_a_producer_of_a_shared_client_compresses_as_that_does() -> None:
    with Client(NOBODY, compression="gzip") as client:
        with pytest.raises(InvalidRequest, match="compression: give it to the client that is shared"):
            Producer(client, "t", compression="zstd")
        Producer(client, "t").close()


def test_a_client_that_travels_keeps_its_compression() -> None:
    client = Client(NOBODY, compression="zstd")
    rebuild, settings = client.__reduce__()
    assert rebuild(*settings).__reduce__() == client.__reduce__()
    assert settings[2]["compression"] == "zstd"


def _over(wire: Wire, compression: str) -> Transport:
    return Transport(
        NOBODY,
        timeout_s=1,
        retries=1,
        pool_size=1,
        compression=compression,
        pause=lambda seconds: None,
        pool=wire,  # type: ignore[arg-type]  # what the transport calls of a pool
    )
