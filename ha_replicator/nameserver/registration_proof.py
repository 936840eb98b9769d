"""Whether who registers with a name server belongs to the cluster.

Owns what is signed: HMAC-SHA256 by the cluster's secret over the request's method, target, time, sender and
body.

Invariants: the secret never goes over the wire; a proof is good for the request it was made for, for
`WINDOW_MS`, and once: the times of one sender only grow.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from ha_replicator.wire.credentials import MIN_SECRET_BYTES

SCHEME = "LakeMQ-HMAC-SHA256"
WINDOW_MS = 300_000
"""How far the clocks of broker and name server may be apart."""
_WORD = b"lakemq registration"
_STAMP = re.compile("[0-9]{1,18}")
_SENDER = re.compile("[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What a name server sees of a request.

    Attributes:
        path: With the query, as it came.
        authorization: The header of that name; empty without one.
        from_this_machine: Its connection comes over loopback.
        client: The other end's address, where it is known.
    """

    method: str
    path: str
    body: bytes
    authorization: str
    from_this_machine: bool
    client: str | None = None


class RegistrationProof:
    """Makes and checks proofs.

    Args:
        secret: The cluster's, at least 16 bytes.

    Raises:
        ValueError: The secret is too short.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(
                f"a cluster's secret has at least {MIN_SECRET_BYTES} bytes, this one {len(secret)}"
            )
        self._secret = secret

    def authorization(self, method: str, path: str, body: bytes, time_ms: int, sender: str) -> str:
        """Returns the header ``Authorization`` of a request.

        Args:
            method: Of the request.
            path: Of the request, with its query.
            body: Of the request.
            time_ms: When it is made, epoch ms.
            sender: One run of a broker, in hexadecimal digits; its times only grow.
        """
        return f"{SCHEME} {time_ms}:{sender}:{self._digest(method, path, body, str(time_ms), sender)}"

    def read(self, request: SignedRequest, now_ms: int) -> tuple[str, int] | None:
        """Returns who made a request and when (epoch ms); None when its proof is none, or not of now."""
        scheme, _, credentials = request.authorization.partition(" ")
        stamp, _, rest = credentials.partition(":")
        sender, _, digest = rest.partition(":")
        if scheme != SCHEME or not _STAMP.fullmatch(stamp) or not _SENDER.fullmatch(sender):
            return None
        expected = self._digest(request.method, request.path, request.body, stamp, sender)
        if not hmac.compare_digest(expected.encode(), digest.encode("utf-8", "surrogatepass")):
            return None
        return (sender, int(stamp)) if abs(now_ms - int(stamp)) <= WINDOW_MS else None

    def _digest(self, method: str, path: str, body: bytes, stamp: str, sender: str) -> str:
        said = (method, path, stamp, sender)
        parts = (
            _WORD,
            *(part.encode("utf-8", "surrogatepass") for part in said),
            hashlib.sha256(body).digest(),
        )
        signed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.new(self._secret, signed, hashlib.sha256).hexdigest()
