"""Heads: by which names, and from which pages, a broker is asked."""

from __future__ import annotations

import pytest

from ingest_api.http.request.guard import RequestGuard
from ingest_api.process_settings import HttpSettings
from store_native.errors import LakeMQError

LOOPBACK = RequestGuard(HttpSettings(), "http")
OVER_TLS = RequestGuard(HttpSettings(), "https")
WILDCARD = RequestGuard(
    HttpSettings(host="0.0.0.0", insecure=True, allowed_hosts=("Broker-a.internal",)), "http"
)
ANY = RequestGuard(HttpSettings(allowed_hosts=("*",)), "http")
PAGES = RequestGuard(HttpSettings(allowed_origins=("https://console.example.com",)), "http")


def check(
    guard: RequestGuard,
    *headers: tuple[bytes, bytes],
    host: bytes | None = b"localhost:8090",
    method: bytes = b"GET",
    target: bytes = b"/healthz",
    version: str = "1.1",
) -> str | bytes | None:
    """Returns the code of a refusal, or what else the guard says."""
    named = [] if host is None else [(b"host", host)]
    found = guard.check(version, method, target, [*named, *headers])
    return found.code if isinstance(found, LakeMQError) else found


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"LOCALHOST:1",
        b"localhost.",
        b"127.0.0.1:8090",
        b"127.9.9.9",
        b"[::1]:80",
        b"localhost:",
    ],
)
def test_names_of_loopback_are_its_own(host: bytes) -> None:
    assert check(LOOPBACK, host=host) is None
    assert check(LOOPBACK, host=host) is None, "also when it is known already"


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"localhost.evil.example", b"10.0.0.1", b"[2001:db8::1]", b"127.0.0.1.evil.example",
     b"0.0.0.0", b"0x7f.1", b"broker-a.internal"],
)  # fmt: skip
def test_other_names_are_refused(host: bytes) -> None:
    assert check(LOOPBACK, host=host) == "NO_PERMISSION"
    assert check(LOOPBACK, target=b"http://" + host + b"/healthz") == "NO_PERMISSION"


@pytest.mark.parametrize(
    "host", [b"", b"a b", b"localhost:x", b"localhost:99999", b"u@localhost", b"[::1", b"\xff"]
)
def test_a_host_that_is_none_is_malformed(host: bytes) -> None:
    assert check(LOOPBACK, host=host) == "MALFORMED_REQUEST"


def test_exactly_one_host_is_named() -> None:
    assert check(LOOPBACK, host=None) == "MALFORMED_REQUEST"
    assert check(LOOPBACK, (b"host", b"localhost:8090")) == "MALFORMED_REQUEST"
    assert check(LOOPBACK, host=None, version="1.0") is None
    assert check(LOOPBACK, (b"host", b"localhost"), version="1.0") == "MALFORMED_REQUEST"


def test_a_broker_on_all_addresses_takes_addresses_and_allowed_names() -> None:
    assert check(WILDCARD, host=b"10.1.2.3:8090") is None
    assert check(WILDCARD, host=b"[2001:db8::1]") is None
    assert check(WILDCARD, host=b"broker-a.internal:8090") is None
    assert check(WILDCARD, host=b"evil.example") == "NO_PERMISSION"
    assert check(ANY, host=b"evil.example") is None


@pytest.mark.parametrize("target", [b"http://localhost:8090/healthz", b"http://127.0.0.1", b"*"])
def test_a_target_may_be_a_url_of_this_broker(target: bytes) -> None:
    assert check(LOOPBACK, target=target) is None


@pytest.mark.parametrize("target", [b"http://u@localhost/", b"ftp://localhost/", b"healthz", b"localhost:80"])
def test_any_other_target_is_malformed(target: bytes) -> None:
    assert check(LOOPBACK, target=target) == "MALFORMED_REQUEST"


def test_pages_of_other_origins_are_refused() -> None:
    for origin in (b"http://evil.example", b"null", b"http://localhost:3000", b"http://localhost", b""):
        assert check(LOOPBACK, (b"origin", origin)) == "NO_PERMISSION", origin
    assert check(LOOPBACK, (b"origin", b"http://localhost:8090")) is None
    assert check(PAGES, (b"origin", b"https://other.example.com")) == "NO_PERMISSION"


@pytest.mark.parametrize(
    ("guard", "own", "other"), [(LOOPBACK, b"http", b"https"), (OVER_TLS, b"https", b"http")]
)
def test_only_an_origin_of_the_scheme_that_is_spoken_is_its_own(
    guard: RequestGuard, own: bytes, other: bytes
) -> None:
    """Anybody on the way can serve a page of the same address over plain HTTP."""
    assert check(guard, (b"origin", own + b"://localhost:8090")) is None
    assert check(guard, (b"origin", other + b"://localhost:8090")) == "NO_PERMISSION"


def test_a_request_names_one_origin() -> None:
    """Which of two counts would be the reader's choice, and the other may be the true one."""
    foreign = (b"origin", b"http://evil.example")
    for guard, own in ((LOOPBACK, b"http://localhost:8090"), (PAGES, b"https://console.example.com")):
        for pair in ([(b"origin", own), foreign], [foreign, (b"origin", own)], [(b"origin", own)] * 2):
            assert check(guard, *pair) == "MALFORMED_REQUEST", pair


def test_what_a_browser_says_of_the_site_counts_without_an_origin() -> None:
    for site in (b"cross-site", b"same-site", b"anything"):
        assert check(LOOPBACK, (b"sec-fetch-site", site)) == "NO_PERMISSION"
    for site in (b"none", b"same-origin"):
        assert check(LOOPBACK, (b"sec-fetch-site", site)) is None


def test_following_a_link_is_allowed_and_embedding_or_a_form_is_not() -> None:
    link = [
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-mode", b"navigate"),
        (b"sec-fetch-dest", b"document"),
    ]
    assert check(LOOPBACK, *link) is None
    assert check(LOOPBACK, *link, method=b"POST") == "NO_PERMISSION"
    assert check(LOOPBACK, *link[:2], (b"sec-fetch-dest", b"iframe")) == "NO_PERMISSION"


def test_an_allowed_origin_is_named_to_the_browser() -> None:
    page = (b"origin", b"https://console.example.com")
    assert check(PAGES, page, (b"sec-fetch-site", b"cross-site")) == page[1]
    answer = dict(PAGES.cors_headers(page[1], b"GET", []))
    assert answer[b"access-control-allow-origin"] == page[1]
    asked = [(b"access-control-request-headers", b"idempotency-key")]
    answer = dict(PAGES.cors_headers(page[1], b"OPTIONS", asked))
    assert answer[b"access-control-allow-headers"] == b"idempotency-key"
    assert b"DELETE" in answer[b"access-control-allow-methods"]
