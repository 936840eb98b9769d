"""A listener on loopback that speaks TLS, and what makes it trusted.

localhost.pem is a key that everybody has and its certificate for 127.0.0.1, which nothing but tests trusts.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("localhost.pem")
TRUSTED_FROM = "SSL_CERT_FILE"
"""The variable that names the certificates a program trusts."""


def over_tls(listener: socket.socket) -> socket.socket:
    """Makes a listener one whose connections are TLS's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context.wrap_socket(listener, server_side=True)
