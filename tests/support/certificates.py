"""Certificates for one test run, made by the program `openssl`.

Owns an authority that nobody else trusts, and the certificates it gives.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lakemq.tls.files import TlsFiles

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class Authority:
    """Gives certificates.

    Args:
        directory: Gets all files.
        name: Of the authority.

    Attributes:
        file: Its own certificate.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = directory / f"{name}.key"
        self.file = directory / f"{name}.pem"
        subject = ("-subj", f"/CN={name}", "-days", "30")
        _openssl("req", "-x509", *_NEW_KEY, "-nodes", *subject, "-keyout", self._key, "-out", self.file)

    def certificate(
        self, *names: str, days: int = 30, pass_phrase: str = "", file: str = "served", trust: str = ""
    ) -> TlsFiles:
        """Makes a key and its certificate.

        Args:
            names: Whom it is for: ``IP:127.0.0.1`` (if none is given), ``DNS:localhost``.
            days: It ends so many days from now; a negative number: it has ended.
            pass_phrase: Of the key; none if empty.
            file: Beginning of the files' names.
            trust: What ``ca`` names; if empty this authority.
        """
        cert, key, asked = (self._directory / f"{file}.{kind}" for kind in ("pem", "key", "csr"))
        for_whom = ("-subj", "/CN=test", "-addext", f"subjectAltName={','.join(names or ('IP:127.0.0.1',))}")
        secret = ("-passout", f"pass:{pass_phrase}") if pass_phrase else ("-nodes",)
        _openssl("req", *_NEW_KEY, *secret, *for_whom, "-keyout", key, "-out", asked)
        by = ("-CA", self.file, "-CAkey", self._key, "-CAcreateserial", "-copy_extensions", "copy")
        _openssl("x509", "-req", "-in", asked, *by, "-days", str(days), "-out", cert)
        key.chmod(0o600)
        return TlsFiles(str(cert), str(key), trust or str(self.file))


def arguments(files: TlsFiles) -> tuple[str, ...]:
    """Returns the files as options of `lakemq serve` and `lakemq nameserver`."""
    return ("--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
