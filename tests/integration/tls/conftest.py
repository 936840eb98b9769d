"""Authorities, certificates and processes that the tests of TLS share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakemq.tls.files import TlsFiles
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority, arguments
from tests.support.tls_cluster import CA_FILE, Cluster


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def served(authority: Authority) -> TlsFiles:
    return authority.certificate()


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody believes."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def elsewhere(authority: Authority) -> TlsFiles:
    """A certificate of another host."""
    return authority.certificate("IP:127.0.0.2", "DNS:elsewhere.example", file="elsewhere")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, served: TlsFiles) -> Iterator[BrokerProcess]:
    """A broker behind a certificate, for tests that keep to topics of their own."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        arguments=arguments(served),
        config="[http]\nhead_timeout_s = 0.5\n",
    )
    yield process
    process.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as on_exit:
        yield Cluster(tmp_path, on_exit)


@pytest.fixture
def believed(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of the test, and commands, believe the authority."""
    monkeypatch.setenv(CA_FILE, str(authority.file))
