"""Whether the other side belongs to the cluster.

Owns the secret and what is made of it: HMAC-SHA256 over the handshake so far, by each side with a word of its
own, so that neither can send back what it heard. The secret itself never goes over the wire.

Invariants: without a secret only a peer on this machine is taken; a peer that has one, or none, where this
broker has none, or one, is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal

Side = Literal["master", "slave"]

MIN_SECRET_BYTES = 16


class Transcript:
    """What both sides have said so far."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, body: bytes) -> None:
        """Adds the body of a message, as it went over the wire."""
        self._hash.update(len(body).to_bytes(8, "big"))
        self._hash.update(body)

    def digest(self) -> bytes:
        """Returns the hash of all bodies so far."""
        return self._hash.digest()


class Credentials:
    """The cluster's secret, or that there is none.

    Args:
        secret: At least 16 bytes; None takes peers of this machine only.

    Raises:
        ValueError: The secret is too short.
    """

    def __init__(self, secret: bytes | None) -> None:
        if secret is not None and len(secret) < MIN_SECRET_BYTES:
            raise ValueError(
                f"a cluster's secret has at least {MIN_SECRET_BYTES} bytes, this one {len(secret)}"
            )
        self._secret = secret

    @property
    def required(self) -> bool:
        """Whether the other side has to prove that it knows the secret."""
        return self._secret is not None

    def prove(self, side: Side, transcript: Transcript) -> str:
        """Returns this side's proof; empty without a secret."""
        if self._secret is None:
            return ""
        return hmac.new(self._secret, side.encode() + transcript.digest(), hashlib.sha256).hexdigest()

    def accepts(self, side: Side, transcript: Transcript, proof: str) -> bool:
        """Says whether the other side, which is ``side``, knows the secret."""
        return hmac.compare_digest(self.prove(side, transcript), proof)
