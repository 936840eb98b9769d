"""What a caller gets wrong is an error of the client's own, at once, and nothing is sent."""

from __future__ import annotations

import math
import socket
from pathlib import Path
from typing import Any

import pytest

from lakemq import Client
from lakemq.client import InvalidRequest, Unavailable

NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout_s", 0),
        ("timeout_s", -1.0),
        ("timeout_s", math.nan),
        ("timeout_s", math.inf),
        ("timeout_s", 1e12),
        ("timeout_s", "3"),
        ("timeout_s", None),
        ("timeout_s", True),
        ("pool_size", 1.5),
        ("pool_size", True),
        ("retry_until", True),
        ("retry_until", 0),
        ("retry_until", math.nan),
        ("retry_until", math.inf),
        ("pool_size", 0),
        ("pool_size", -1),
    ],
)
def test_number_without_sense_is_refused_when_the_client_is_made(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"ARGUMENT_ILLEGAL: {name}: is "):
        Client(NOBODY, **{name: value})


def test_file_of_authorities_that_cannot_be_read_is_called_what_the_user_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, given, set_by_variable = "https://127.0.0.1:1", tmp_path / "given", tmp_path / "variable"
    monkeypatch.setenv("LAKEMQ_CA_FILE", str(set_by_variable))
    with pytest.raises(
        InvalidRequest, match=f"ARGUMENT_ILLEGAL: LAKEMQ_CA_FILE: {set_by_variable} cannot be"
    ):
        Client(broker)
    with pytest.raises(InvalidRequest, match=f"ARGUMENT_ILLEGAL: ca_file: {given} cannot be read"):
        Client(broker, ca_file=str(given))


def test_retry_until_of_a_call_has_sense() -> None:
    with Client(NOBODY) as client, pytest.raises(InvalidRequest, match="retry_until"):
        client.send("t", "x", retry_until=math.nan)


@pytest.mark.parametrize("key", ["", "a\r\nX-LakeMQ-Tags: y", "é", "日", "a b", "k" * 256])
def test_idempotency_key_that_is_none_is_refused_before_it_is_sent(key: str) -> None:
    with Client(NOBODY) as client, pytest.raises(InvalidRequest, match="Idempotency-Key has 1 to 255"):
        client.send("t", "x", idempotency_key=key)


@pytest.mark.parametrize("name", [None, "\ud800", b"t", 1.5])
def test_name_that_is_no_text_is_refused(name: Any) -> None:
    with Client(NOBODY) as client, pytest.raises(InvalidRequest, match="is not a name"):
        client.send(name, "x")


def test_time_that_is_over_before_anything_was_sent_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=1e-9, retries=0)
        with pytest.raises(Unavailable) as late:
            client.queues("t")
    assert late.value.detail.endswith("timed out")
