"""Two masters behind two name servers, and a client of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from urllib3 import HTTPConnectionPool

from lakemq.client import Client
from tests.support.name_servers import BrokersOfCluster
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersOfCluster]:
    """Two name servers, masters a and b; tests that end one start it again."""
    with BrokersOfCluster(tmp_path_factory.mktemp("cluster"), name_servers=2) as started:
        started.master("broker-a")
        started.master("broker-b")
        yield started


@pytest.fixture
def all_there(cluster: BrokersOfCluster) -> Iterator[None]:
    """Has the next test begin when every name server knows both brokers."""
    yield
    for server in cluster.name_servers:
        wait_until(lambda server=server: set(server.addresses()) == {"broker-a", "broker-b"})  # type: ignore[misc]


@pytest.fixture
def client(cluster: BrokersOfCluster) -> Iterator[Client]:
    with Client(cluster.endpoint, timeout_s=10) as connected:
        yield connected


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests of all clients, as ``METHOD /path``."""
    made: list[str] = []
    urlopen = HTTPConnectionPool.urlopen

    def noted(self: HTTPConnectionPool, method: str, url: str, **how: Any) -> Any:
        made.append(f"{method} {url}")
        return urlopen(self, method, url, **how)

    monkeypatch.setattr(HTTPConnectionPool, "urlopen", noted)
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many requests clients have made of each port."""
    made: Counter[int] = Counter()
    urlopen = HTTPConnectionPool.urlopen

    def noted(self: HTTPConnectionPool, method: str, url: str, **how: Any) -> Any:
        made[self.port or 0] += 1
        return urlopen(self, method, url, **how)

    monkeypatch.setattr(HTTPConnectionPool, "urlopen", noted)
    return made
