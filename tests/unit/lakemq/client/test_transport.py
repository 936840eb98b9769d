"""No name can change the path of a request, and only http addresses are endpoints."""

from __future__ import annotations

import pickle
from urllib.parse import unquote

import pytest
import urllib3
from hypothesis import assume, given
from hypothesis import strategies as st

from lakemq.client import Client, InvalidRequest
from lakemq.client.transport import normal_endpoint, path_of


def test_retry_topic_is_quoted_once() -> None:
    assert path_of("topics", "%RETRY%g", "queues") == "/api/v1/topics/%25RETRY%25g/queues"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_http_libraries_fold_away_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL"):
        path_of("topics", name)


@given(st.text(min_size=1))
def test_any_other_name_reaches_the_broker_as_it_is(name: str) -> None:
    assume(name not in (".", ".."))
    assume(not any(0xD800 <= ord(character) <= 0xDFFF for character in name))
    sent = urllib3.util.parse_url("http://h" + path_of("topics", name)).path
    assert sent is not None
    assert [unquote(part) for part in sent.split("/")] == ["", "api", "v1", "topics", name]


@pytest.mark.parametrize(
    ("given_text", "endpoint"),
    [
        ("127.0.0.1:8090", "http://127.0.0.1:8090"),
        ("http://127.0.0.1:8090/", "http://127.0.0.1:8090"),
        ("https://broker.example", "https://broker.example"),
        ("http://[::1]:8090", "http://[::1]:8090"),
    ],
)
def test_endpoint_is_brought_into_one_form(given_text: str, endpoint: str) -> None:
    assert normal_endpoint(given_text) == endpoint


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "http://h:port", "http://h/api/v1"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an endpoint"):
        normal_endpoint(text)


def test_endpoint_comes_from_the_environment_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMQ_ENDPOINT", "10.0.0.1:9000")
    assert Client().endpoint == "http://10.0.0.1:9000"
    assert Client("127.0.0.1:1").endpoint == "http://127.0.0.1:1"


def test_client_travels_to_a_worker_as_its_settings() -> None:
    sent = Client("127.0.0.1:1", timeout_s=7.0, retries=5)
    client = pickle.loads(pickle.dumps(sent))
    assert client.endpoint == "http://127.0.0.1:1"
    assert client.call_timeout_s == 7.0
    assert client.__reduce__() == sent.__reduce__(), "what travels on is what came"
