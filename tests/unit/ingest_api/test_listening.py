"""A place that nobody can listen on is named in one line."""

from __future__ import annotations

import pytest

from ingest_api.server import _bind
from ingest_api.settings import HttpSettings, Settings
from store_native.errors import InvalidRequest


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "192.0.2.1"])
def test_a_host_that_is_none_of_ours_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match=f"cannot listen on {host} port 0: "):
        _bind(Settings(http=HttpSettings(host=host, port=0, insecure=True)))
