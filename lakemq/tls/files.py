"""A certificate and its key: the files, what may be wrong with them, and the context made of them.

Owns the checks at a start.

Invariants: files with which no client could connect - missing, unreadable, expired, not of each other - are
an error that names the file, before a port is opened; nobody is asked for a pass phrase.
"""

from __future__ import annotations

import logging
import ssl
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store_native.errors import InvalidRequest

log = logging.getLogger("lakemq.tls")

SOON_S = 14 * 86_400.0
"""A certificate that ends within it is warned of."""

_OF_THE_CERTIFICATE = frozenset({"CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "EE_KEY_TOO_SMALL"})
_HANDSHAKE_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM form; an empty name is none.

    Attributes:
        cert: The certificate, behind it those between it and its authority. With it every port speaks TLS.
        key: The certificate's private key, without a pass phrase.
        ca: The authorities whose certificates of other brokers and name servers are believed; empty: the
            system's.
    """

    cert: str = ""
    key: str = ""
    ca: str = ""

    @property
    def is_given(self) -> bool:
        """Whether anything of it is."""
        return bool(self.cert or self.ca)


class _HasPassPhrase(Exception):
    """The key asks for one."""


def serving_context(files: TlsFiles) -> ssl.SSLContext | None:
    """Makes the context of who is connected to; None without a certificate.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL; a file is missing or unusable, or the certificate has expired.
    """
    if not files.cert:
        return None
    _check_readable("tls.cert", files.cert)
    _check_readable("tls.key", files.key)
    itself = _trusting_only(files.cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_pass_phrase)
    except _HasPassPhrase:
        raise illegal(
            "tls.key", f"{files.key} has a pass phrase; a broker that starts by itself has none"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise illegal(
                "tls.key", f"{files.key} is not the key of the certificate in {files.cert}"
            ) from error
        if error.reason in _OF_THE_CERTIFICATE:
            raise illegal("tls.cert", f"{files.cert} is too weak: {words_of(error.reason)}") from error
        raise illegal("tls.key", f"{files.key} holds no private key in PEM form") from error
    try:
        _shake_hands(context, itself)
    except ssl.SSLCertVerificationError as error:
        raise illegal("tls.cert", f"{files.cert} would be refused: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise illegal("tls.cert", f"{files.cert} cannot be used: {words_of(error.reason)}") from error
    return context


def warn_of(files: TlsFiles) -> None:
    """Says in the log what a start does not fail for: a key that others can read, an end that is near."""
    if not files.cert:
        return
    mode = Path(files.key).stat().st_mode
    if mode & stat.S_IROTH:
        fields = {"file": files.key, "mode": f"{stat.S_IMODE(mode):04o}"}
        log.warning("every user of this machine can read the private key", extra={"fields": fields})
    ends_at = _end_of(files)
    if ends_at - time.time() < SOON_S:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends_at))
        log.warning("the certificate ends soon", extra={"fields": {"file": files.cert, "until": until}})


def warn_of_address(files: TlsFiles, address: str) -> None:
    """Says in the log that a certificate is not for the address under which others will ask for it.

    Args:
        files: With a certificate that was found usable.
        address: A host's name or IP address, as clients have it.
    """
    if is_for(files, address):
        return
    named = ", ".join(name for _, name in _certificate_of(files).get("subjectAltName", ())) or "none"
    fields = {"file": files.cert, "address": address, "names": named}
    log.warning(
        "the certificate is not for the address that others are told: they will refuse it",
        extra={"fields": fields},
    )


def is_for(files: TlsFiles, address: str) -> bool:
    """Says whether a client that asks for an address would take the certificate for its."""
    asking = _trusting_only(files.cert)
    asking.check_hostname = True
    try:
        _shake_hands(_serving(files), asking, address)
    except (ssl.SSLCertVerificationError, ValueError):  # ValueError: no certificate can be for it
        return False
    return True


def illegal(name: str, reason: str) -> InvalidRequest:
    """Makes the refusal of a setting."""
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{name}: {reason}", setting=name)


def words_of(reason: str | None) -> str:
    """Returns OpenSSL's name of a reason in small letters."""
    return (reason or "no reason was given").replace("_", " ").lower()


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise illegal(name, f"{path} cannot be read: {error.strerror or error}") from error


def _trusting_only(cert: str) -> ssl.SSLContext:
    """A client that believes this very certificate and nothing else, whoever it is for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # it is asked for no host: the certificate is tried on itself
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cafile=cert)
    except ssl.SSLError as error:
        raise illegal("tls.cert", f"{cert} holds no certificate in PEM form") from error
    return context


def _no_pass_phrase() -> str:
    raise _HasPassPhrase


def _end_of(files: TlsFiles) -> float:
    return float(ssl.cert_time_to_seconds(str(_certificate_of(files)["notAfter"])))


def _certificate_of(files: TlsFiles) -> dict[str, Any]:
    """What the certificate says, as Python's ssl has it."""
    found = _shake_hands(_serving(files), _trusting_only(files.cert)).getpeercert()
    assert found is not None, "the handshake is done"
    return found


def _serving(files: TlsFiles) -> ssl.SSLContext:
    context = serving_context(files)
    assert context is not None, "there is a certificate"
    return context


def _shake_hands(
    serving: ssl.SSLContext, asking: ssl.SSLContext, address: str | None = None
) -> ssl.SSLObject:
    """Has a client connect in memory, to an address where it checks that; returns its end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=address)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_HANDSHAKE_ROUNDS):
        waiting = 0
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return client
    raise ssl.SSLError("the handshake does not end")
