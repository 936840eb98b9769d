"""A certificate with which no client could connect ends the start, in one line that names the file."""

from __future__ import annotations

import logging
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from lakemq.tls.files import TlsFiles, serving_context, warn_of, warn_of_address
from lakemq.tls.trust import Trust
from store_native.errors import InvalidRequest
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    return authority.certificate(file="good")


def refusal_of(files: TlsFiles) -> str:
    with pytest.raises(InvalidRequest) as refused:
        serving_context(files)
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    return refused.value.detail


def test_without_a_certificate_there_is_no_tls() -> None:
    assert serving_context(TlsFiles()) is None


def test_tls_is_1_2_at_least_on_both_sides(authority: Authority, files: TlsFiles) -> None:
    serving = serving_context(files)
    assert serving is not None
    assert serving.minimum_version == ssl.TLSVersion.TLSv1_2
    asking = Trust(str(authority.file)).context()
    assert asking.minimum_version == ssl.TLSVersion.TLSv1_2
    assert asking.check_hostname
    assert asking.verify_mode is ssl.CERT_REQUIRED


def test_what_is_missing_is_named(files: TlsFiles, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert refusal_of(replace(files, cert=nowhere)).startswith(f"tls.cert: {nowhere} cannot be read: No such")
    assert refusal_of(replace(files, key=nowhere)).startswith(f"tls.key: {nowhere} cannot be read: No such")
    with pytest.raises(InvalidRequest, match=f"tls.ca: {nowhere} cannot be read: No such"):
        Trust(nowhere).context()


def test_what_is_no_pem_is_named(files: TlsFiles, tmp_path: Path) -> None:
    other = tmp_path / "text"
    other.write_text("no certificate")
    assert (
        refusal_of(replace(files, cert=str(other))) == f"tls.cert: {other} holds no certificate in PEM form"
    )
    assert refusal_of(replace(files, key=str(other))) == f"tls.key: {other} holds no private key in PEM form"
    assert "tls.cert" in refusal_of(TlsFiles(files.key, files.cert)), "the two are exchanged"
    with pytest.raises(InvalidRequest, match=r"ca_file: .* holds no certificate"):
        Trust(str(other), "ca_file").context()


def test_a_key_of_another_certificate_is_named(authority: Authority, files: TlsFiles) -> None:
    other = authority.certificate(file="other")
    assert refusal_of(replace(files, key=other.key)) == (
        f"tls.key: {other.key} is not the key of the certificate in {files.cert}"
    )


def test_a_key_with_a_pass_phrase_asks_nobody(authority: Authority) -> None:
    locked = authority.certificate(file="locked", pass_phrase="secret")
    assert refusal_of(locked).startswith(f"tls.key: {locked.key} has a pass phrase")


def test_an_expired_certificate_is_named(authority: Authority) -> None:
    old = authority.certificate(file="old", days=-1)
    assert refusal_of(old) == f"tls.cert: {old.cert} would be refused: certificate has expired"


def test_a_key_that_others_can_read_and_an_end_that_is_near_are_warned_of(
    authority: Authority, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        warn_of(TlsFiles())
        warn_of(files)
        assert caplog.messages == []
        soon = authority.certificate(file="soon", days=7)
        Path(soon.key).chmod(0o644)
        warn_of(soon)
    assert caplog.messages == [
        "every user of this machine can read the private key",
        "the certificate ends soon",
    ]
    assert [record.__dict__["fields"]["file"] for record in caplog.records] == [soon.key, soon.cert]


@pytest.mark.parametrize("address", ["127.0.0.1", "2001:db8::1", "broker-a.internal", "BROKER-A.internal"])
def test_a_certificate_for_its_address_is_not_warned_of(
    authority: Authority, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    names = ("IP:127.0.0.1", "IP:2001:db8::1", "DNS:broker-a.internal")
    warn_of_address(authority.certificate(*names, file="fits"), address)
    assert caplog.messages == []


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::2", "broker-b.internal", "broker-a", "a..b"])
def test_a_certificate_that_is_not_for_its_address_is_warned_of(
    authority: Authority, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    other = authority.certificate("IP:127.0.0.1", "DNS:broker-a.internal", file="not-for-it")
    warn_of_address(other, address)
    assert caplog.messages == [
        "the certificate is not for the address that others are told: they will refuse it"
    ]
    said = caplog.records[0].__dict__["fields"]
    assert said == {"file": other.cert, "address": address, "names": "127.0.0.1, broker-a.internal"}
