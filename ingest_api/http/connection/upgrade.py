"""A head that asks for another protocol.

Owns the decision about it and the head without it.

Invariants: it is decided before anything behind the head is looked at.

HTTP/2 is not spoken here. A client that offers it (``curl --http2``) goes on in HTTP/1.1 when the offer is
ignored. A client that asks for anything else would send something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingest_api.http.request.guard import malformed
from store_native.errors import InvalidRequest

Headers = Sequence[tuple[bytes, bytes]]


def refuse_upgrade(method: bytes, headers: Headers) -> InvalidRequest | None:
    """Returns why the request cannot go on in HTTP/1.1; None when its offer can be ignored."""
    if method == b"CONNECT":
        return malformed("CONNECT is for proxies")
    offered = [value for name, value in headers if name == b"upgrade"]
    if any(token.strip().lower() != b"h2c" for value in offered for token in value.split(b",")):
        return malformed("this broker speaks HTTP/1.1 only; it takes no Upgrade")
    return None


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """Writes the head again without its offer."""
    lines = [b"%b: %b\r\n" % (name, value) for name, value in headers if name != b"upgrade"]
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version.encode(), b"".join(lines))
