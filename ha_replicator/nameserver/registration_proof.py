"""Whether who registers with a name server belongs to the cluster.

Owns what is signed: HMAC-SHA256 by the cluster's secret over the request's method, path, time and body.

Invariants: the secret never goes over the wire; a proof is good for the request it was made for, for
`WINDOW_MS`, and once: the times of one broker only grow.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from ha_replicator.wire.credentials import MIN_SECRET_BYTES

SCHEME = "LakeMQ-HMAC-SHA256"
WINDOW_MS = 300_000
"""How far the clocks of broker and name server may be apart."""
_WORD = b"lakemq registration"


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What a name server sees of a request.

    Attributes:
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

    def authorization(self, method: str, path: str, body: bytes, time_ms: int) -> str:
        """Returns the header ``Authorization`` of a request made at a time (epoch ms)."""
        return f"{SCHEME} {time_ms}:{self._digest(method, path, body, time_ms)}"

    def time_of(self, request: SignedRequest, now_ms: int) -> int | None:
        """Returns when a request was made (epoch ms); None when its proof is none, or not of now."""
        scheme, _, credentials = request.authorization.partition(" ")
        stamp, _, digest = credentials.partition(":")
        if scheme != SCHEME or not (stamp.isascii() and stamp.isdecimal()) or len(stamp) > 18:
            return None
        time_ms = int(stamp)
        expected = self._digest(request.method, request.path, request.body, time_ms)
        if not hmac.compare_digest(expected.encode(), digest.encode("utf-8", "surrogatepass")):
            return None
        return time_ms if abs(now_ms - time_ms) <= WINDOW_MS else None

    def _digest(self, method: str, path: str, body: bytes, time_ms: int) -> str:
        parts = (_WORD, method.encode(), path.encode(), str(time_ms).encode(), hashlib.sha256(body).digest())
        signed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.new(self._secret, signed, hashlib.sha256).hexdigest()
