"""A place that nobody can listen on is named in one line."""

from __future__ import annotations

import pytest

from ingest_api.process import _bind
from ingest_api.settings import HttpSettings
from store_native.errors import InvalidRequest


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "192.0.2.1"])
def test_a_host_that_is_none_of_ours_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match=f"cannot listen on {host} port 0: "):
        _bind(HttpSettings(host=host, port=0, insecure=True))


def test_a_taken_port_says_how_to_get_another() -> None:
    with _bind(HttpSettings(port=0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest) as refused:
            _bind(HttpSettings(port=port))
    assert refused.value.detail == (
        f"cannot listen on 127.0.0.1 port {port}: Address already in use; "
        "--port gives this broker another, 0 a free one"
    )
