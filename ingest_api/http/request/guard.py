"""Looks at a request's head before anything else does, and says whether the request is taken at all.

Owns what a head may say to this broker, whatever the request is for: who it is addressed to, which
page sent it, how its end is marked.

Invariants: a page of another site, in the browser of somebody who can reach the broker, neither changes nor
reads anything here unless its origin is allowed, by whatever name it reaches the broker; a page of the same
address that came by another scheme is of another site.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

import httptools

from ingest_api.advertised import parsed
from ingest_api.process_settings import HttpSettings
from store_native.errors import InvalidRequest, LakeMQError
from store_native.names import LOG_PARTED_HEADER, MAY_BE_BEHIND_HEADER

RawHeaders = list[tuple[bytes, bytes]]

_LOOKED_AT = frozenset({b"transfer-encoding", b"expect", b"origin", b"sec-fetch-site"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z_.-]+)(?::([0-9]{0,5}))?")
_MAX_HOSTS = 1024
_LONGEST_HOST = 253 + len("[]:65535")
_PREFLIGHT_AGE_S = 600
_EXPOSED = (
    b"X-LakeMQ-Status, X-LakeMQ-Next-Offset, X-LakeMQ-Min-Offset, X-LakeMQ-Max-Offset, X-LakeMQ-Count, "
    b"X-LakeMQ-Damaged, X-LakeMQ-Suggested-Broker-Id, X-LakeMQ-Epoch, "
    + f"{MAY_BE_BEHIND_HEADER}, {LOG_PARTED_HEADER}".encode()
    + b", "
    b"X-Request-Id, Retry-After"
)


class RequestGuard:
    """Checks heads.

    A page of another site can make a name of its own lead to this address (rebinding); then its requests
    are of one origin for the browser. The name in Host tells. An address cannot be made to lead elsewhere,
    so a broker that listens on all of its machine's takes any address, but no name beside its settings'.

    Args:
        settings: Where the broker listens, and which further names and origins are allowed.
        scheme: ``https`` where its port speaks TLS, else ``http``.
    """

    def __init__(self, settings: HttpSettings, scheme: str) -> None:
        self._own_scheme = f"{scheme}://".encode()
        self._listens_on = settings.host.lower()
        self._wildcard = _is_wildcard(self._listens_on)
        allowed = list(settings.allowed_hosts)
        if settings.advertised_address:
            allowed.append(parsed(settings.advertised_address)[0])  # who follows a route comes by it
        self._names = frozenset(name.lower().strip("[]").rstrip(".") for name in allowed)
        self._origins = frozenset(origin.lower().rstrip("/").encode() for origin in settings.allowed_origins)
        # Host as clients write it, found allowed. Bounded: beyond it a Host is looked at each time.
        self._allowed: set[bytes] = set()

    def check(
        self, version: str, method: bytes, target: bytes, headers: RawHeaders
    ) -> LakeMQError | bytes | None:
        """Checks a head.

        Args:
            version: ``1.1`` or what the client said.
            method: In capitals.
            target: As it came: a path, or ``http://host/path``.
            headers: Names in lower case.

        Returns:
            Why the request is refused and its connection ends; or None when it is taken; or the origin of
            the page that sent it, when that is another and allowed: the answer has to name it.
        """
        hosts = 0
        special = version != "1.1"
        for name, value in headers:
            if name == b"host":
                hosts += 1
                if value not in self._allowed and (refused := self._look_at_host(value)) is not None:
                    return refused
            elif name in _LOOKED_AT:
                special = True
        if hosts != 1 and (hosts or version != "1.0"):
            return malformed("a request names one Host" if hosts else "the request has no Host")
        if target[:1] != b"/" and (refused := self._look_at_authority(target)) is not None:
            return refused
        return self._look_closer(version, method, headers) if special else None

    def cors_headers(self, origin: bytes, method: bytes, headers: RawHeaders) -> RawHeaders:
        """Returns what the answer says to the browser of an allowed origin."""
        answer = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        if method != b"OPTIONS":
            return [*answer, (b"access-control-expose-headers", _EXPOSED)]
        asked = dict(headers)
        answer.append((b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"))
        answer.append((b"access-control-max-age", b"%d" % _PREFLIGHT_AGE_S))
        if b"access-control-request-headers" in asked:
            answer.append((b"access-control-allow-headers", asked[b"access-control-request-headers"]))
        if b"access-control-request-private-network" in asked:
            answer.append((b"access-control-allow-private-network", b"true"))
        return answer

    def _look_at_host(self, value: bytes) -> LakeMQError | None:
        found = _HOST.fullmatch(value.decode("latin-1").lower()) if len(value) <= _LONGEST_HOST else None
        if found is None or int(found[2] or 0) > 65535:
            return malformed("Host is not a name or an address, with or without a port")
        if not self._is_allowed(found[1]):
            return _not_allowed(found[1])
        if len(self._allowed) < _MAX_HOSTS:
            self._allowed.add(value)
        return None

    def _look_at_authority(self, target: bytes) -> LakeMQError | None:
        """Checks the host of a whole URL, which counts more than Host does."""
        if target == b"*":
            return None
        try:
            parts = httptools.parse_url(target)
        except httptools.HttpParserError:
            return malformed("the target is neither a path nor a URL")
        if parts.schema not in (b"http", b"https") or not parts.host or parts.userinfo:
            return malformed("the target is neither a path nor a URL of this broker")
        name = parts.host.decode("latin-1").lower()
        name = f"[{name}]" if ":" in name else name
        return None if self._is_allowed(name) else _not_allowed(name)

    def _is_allowed(self, host: str) -> bool:
        name = host.strip("[]").rstrip(".")
        if name in ("localhost", self._listens_on) or name in self._names or "*" in self._names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._wildcard or str(address) == self._listens_on

    def _look_closer(self, version: str, method: bytes, headers: RawHeaders) -> LakeMQError | bytes | None:
        if version not in ("1.1", "1.0"):
            return InvalidRequest(
                "HTTP_VERSION_NOT_SUPPORTED", f"HTTP/{version} is not spoken here; nothing was stored"
            )
        found = dict(headers)
        if b"transfer-encoding" in found:
            if version == "1.0":
                return malformed("HTTP/1.0 has no Transfer-Encoding")
            if any(n == b"transfer-encoding" and v.strip().lower() != b"chunked" for n, v in headers):
                return InvalidRequest(
                    "NOT_IMPLEMENTED",
                    "the only Transfer-Encoding that is undone here is chunked; nothing was stored",
                    header="Transfer-Encoding",
                )
        if found.get(b"expect", b"100-continue").strip().lower() != b"100-continue":
            return InvalidRequest(
                "EXPECTATION_FAILED", "the only Expect is 100-continue; nothing was stored", header="Expect"
            )
        return self._look_at_page(method, headers, found)

    def _look_at_page(
        self, method: bytes, headers: RawHeaders, found: dict[bytes, bytes]
    ) -> LakeMQError | bytes | None:
        """Checks what a browser says of the page that sends the request; other clients say nothing."""
        origins = [value for name, value in headers if name == b"origin"]
        if origins:
            origin = origins[0].lower()
            if len(origins) > 1:
                return malformed("a request has one Origin")
            if origin in self._origins or b"*" in self._origins:
                return origins[0]
            host = found.get(b"host", b"").lower()
            if origin != self._own_scheme + host:
                shown = origin.decode("latin-1")
                return InvalidRequest(
                    "NO_PERMISSION",
                    f"a page of {shown} may not ask this broker; http.allowed_origins allows it. "
                    "Nothing was stored",
                    header="Origin",
                )
        if found.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin"):
            return None
        if (
            method == b"GET"
            and found.get(b"sec-fetch-mode") == b"navigate"
            and (found.get(b"sec-fetch-dest") == b"document")
        ):
            return None  # somebody follows a link to /docs; the page with the link sees nothing of it
        return InvalidRequest(
            "NO_PERMISSION",
            "a page of another site may not ask this broker. Nothing was stored",
            header="Sec-Fetch-Site",
        )


def malformed(detail: str) -> InvalidRequest:
    """Makes the refusal of what is no request of HTTP/1.1."""
    return InvalidRequest("MALFORMED_REQUEST", f"{detail}; nothing was stored")


def _not_allowed(host: str) -> InvalidRequest:
    return InvalidRequest(
        "NO_PERMISSION",
        f"this broker is not called {host}; --allowed-host {host} allows the name. Nothing was stored",
        header="Host",
    )


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
