"""Where others reach a broker: never at a wildcard."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from ingest_api.advertised import advertised_url, parsed
from ingest_api.setting_sources import load_settings
from store_native.errors import InvalidRequest


def test_the_address_listened_on_is_advertised_unless_a_setting_says_another() -> None:
    assert advertised_url("", "127.0.0.1", 8090) == "http://127.0.0.1:8090"
    assert advertised_url("", "::1", 8090) == "http://[::1]:8090"
    assert advertised_url("broker", "0.0.0.0", 8090, "https") == "https://broker:8090"
    assert advertised_url("broker", "0.0.0.0", 8090) == "http://broker:8090"
    assert advertised_url("broker.internal:80", "0.0.0.0", 8090) == "http://broker.internal:80"
    assert advertised_url("[2001:db8::1]:80", "::", 8090) == "http://[2001:db8::1]:80"


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
def test_a_wildcard_is_no_address_for_others(wildcard: str) -> None:
    place = urlsplit(advertised_url("", wildcard, 8791))
    assert place.hostname
    assert place.hostname not in ("0.0.0.0", "::")
    assert place.port == 8791


@pytest.mark.parametrize(
    "text", ["0.0.0.0", "[::]:1", "http://broker", "broker:0", "broker:70000", "a b", ":1"]
)
def test_what_nobody_can_connect_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is|lie"):
        parsed(text)
    with pytest.raises(InvalidRequest, match=r"http\.advertised_address"):
        load_settings(None, {"http.advertised_address": text})
