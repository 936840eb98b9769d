"""Where a master takes slaves, and how it is spoken to there.

Owns nothing but the shape. Values only.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple


class LinkPlace(NamedTuple):
    """A replication port.

    Attributes:
        host: A name or an address; with TLS the one that the certificate must be for.
        port: The port.
        tls: Whose certificate is believed; None speaks plainly.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
