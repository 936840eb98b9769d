"""Looks at a request's head before anything else does, and says whether the request is taken at all.

Owns what may stand in a head of this broker, whatever the request is for. What never breaks: a request whose
end another program between here and the client could see elsewhere is refused. Called by protocol.py for
every request, so the common case is one loop over the headers.
"""

from __future__ import annotations

from store_native.errors import InvalidRequest, LakeMQError

RawHeaders = list[tuple[bytes, bytes]]

_LOOKED_AT = frozenset({b"transfer-encoding", b"expect"})


class RequestGuard:
    """Checks heads."""

    def check(self, version: str, headers: RawHeaders) -> LakeMQError | None:
        """Checks a head.

        Args:
            version: ``1.1`` or what the client said.
            headers: Names in lower case.

        Returns:
            Why the request is refused and its connection ends; None when it is taken.
        """
        if version != "1.1" and version != "1.0":
            return InvalidRequest(
                "HTTP_VERSION_NOT_SUPPORTED", f"HTTP/{version} is not spoken here; nothing was stored"
            )
        for name, value in headers:
            if name in _LOOKED_AT and (refused := _looked_at(version, name, value)) is not None:
                return refused
        return None


def _looked_at(version: str, name: bytes, value: bytes) -> LakeMQError | None:
    if name == b"transfer-encoding":
        if version == "1.0":
            return malformed("HTTP/1.0 has no Transfer-Encoding")
        if value.strip().lower() != b"chunked":
            return InvalidRequest(
                "NOT_IMPLEMENTED",
                "the only Transfer-Encoding that is undone here is chunked; nothing was stored",
                header="Transfer-Encoding",
            )
    elif value.strip().lower() != b"100-continue":
        return InvalidRequest(
            "EXPECTATION_FAILED", "the only Expect is 100-continue; nothing was stored", header="Expect"
        )
    return None


def malformed(detail: str) -> InvalidRequest:
    """Makes the refusal of what is no request of HTTP/1.1."""
    return InvalidRequest("MALFORMED_REQUEST", f"{detail}; nothing was stored")
