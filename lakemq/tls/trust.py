"""Whose certificates are believed by who connects, and what a failed handshake is called.

Owns the client's context.

Invariants: a peer's certificate and host name are always checked; nothing turns that off.
"""

from __future__ import annotations

import ssl

from lakemq.tls.files import illegal, words_of

_ANSWERED_PLAIN = frozenset(
    {
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
SPEAKS_NO_TLS = "what answers there speaks no TLS: a plain address begins with http://"


class Trust:
    """The authorities a process believes.

    Args:
        ca_file: Their certificates in PEM form; empty: the system's (SSL_CERT_FILE names others).
        named: What the file is called where it is set.
    """

    def __init__(self, ca_file: str = "", named: str = "tls.ca") -> None:
        self._ca_file = ca_file
        self._named = named
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Returns the context of who connects; the files are read once.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL; the file cannot be read, or holds no certificate.
        """
        if self._context is None:
            self._context = trusting_context(self._ca_file, self._named)
        return self._context


def trusting_context(ca_file: str, named: str) -> ssl.SSLContext:
    """Makes a context; arguments and errors are those of :class:`Trust`."""
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except ssl.SSLError as error:
        raise illegal(named, f"{ca_file} holds no certificate in PEM form") from error
    except OSError as error:
        raise illegal(named, f"{ca_file} cannot be read: {error.strerror or error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def in_words(error: OSError) -> str:
    """Says why a TLS connection did not come about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "it closed the connection in the TLS handshake"
    if isinstance(error, ssl.SSLError):
        return SPEAKS_NO_TLS if error.reason in _ANSWERED_PLAIN else f"TLS failed: {words_of(error.reason)}"
    return error.strerror or str(error)
