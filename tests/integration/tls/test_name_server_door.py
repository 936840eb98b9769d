"""Name servers behind certificates, with real processes.

Contract: brokers register, and clients find them; nobody registers with a name server it does not believe,
and who speaks the wrong way hears what is wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from lakemq.cli import app
from lakemq.client import Client, LakeMQError
from lakemq.client.endpoint import chosen_ca_file
from lakemq.client.transport import Transport, path_of
from lakemq.tls.files import TlsFiles
from tests.support.certificates import Authority
from tests.support.tls_cluster import Cluster
from tests.support.waiting import wait_until


@pytest.mark.parametrize("wrong", ["authority", "host"])
@pytest.mark.usefixtures("believed")
def test_a_broker_registers_with_no_name_server_it_does_not_believe(
    cluster: Cluster, served: TlsFiles, elsewhere: TlsFiles, stranger: Authority, wrong: str
) -> None:
    names = cluster.name_server(served if wrong == "authority" else elsewhere)
    own = TlsFiles(served.cert, served.key, str(stranger.file) if wrong == "authority" else served.ca)
    broker = cluster.start("m", "--nameserver", names.url, files=own)
    wait_until(lambda: "not registered with a name server" in broker.log(), otherwise=broker.log)
    assert "its certificate is not accepted" in broker.log()
    with broker.client() as client:
        assert client.send("t", b"x").status == "SEND_OK", "it serves all the same"


@pytest.mark.parametrize("names_speak_tls", [True, False])
@pytest.mark.usefixtures("believed")
def test_a_registration_that_speaks_the_wrong_way_is_told(
    cluster: Cluster, served: TlsFiles, names_speak_tls: bool
) -> None:
    names = cluster.name_server(served if names_speak_tls else None)
    wrong = names.url.replace("https", "http") if names_speak_tls else names.url.replace("http", "https")
    broker = cluster.start("m", "--nameserver", wrong, files=served)
    told = "this port speaks TLS" if names_speak_tls else "speaks no TLS"
    wait_until(lambda: told in broker.log(), otherwise=broker.log)
    assert registered(names.url) == []


@pytest.mark.usefixtures("believed")
def test_brokers_are_found_through_a_name_server_behind_tls(cluster: Cluster, served: TlsFiles) -> None:
    names = cluster.name_server(served)
    assert names.url.startswith("https://")
    beats = ("--nameserver", names.url, "--nameserver_heartbeat_s", "1")
    one = cluster.start("a", *beats, "--broker-name", "one", files=served)
    two = cluster.start("b", *beats, "--broker-name", "two", files=served)
    with Client(names.url) as client:
        wait_until(lambda: known(names.url) == {"one": one.endpoint, "two": two.endpoint})
        client.put_topic("orders")
        for number in range(20):
            assert client.send("orders", str(number).encode()).status == "SEND_OK"
        held = {name: broker.queues("orders") for name, broker in client.brokers("orders").items()}
        assert all(sum(queue.max_offset for queue in queues) for queues in held.values())
        assert app.main(["topic", "show", "orders", "--endpoint", names.url]) == 0
        two.stop()
        wait_until(lambda: "two" not in {entry["broker_name"] for entry in registered(names.url)})


def registered(url: str) -> list[dict[str, Any]]:
    """The brokers that a name server says."""
    name_server = Transport(url, timeout_s=5, retries=0, pool_size=1, ca_file=chosen_ca_file(None))
    answer = name_server.call("GET", path_of("cluster"))
    name_server.close()
    return answer.read(lambda said: [dict(broker) for broker in said["brokers"]])


def known(url: str) -> dict[str, str]:
    try:
        entries = registered(url)
    except LakeMQError:
        return {}
    return {entry["broker_name"]: entry["addresses"].get("0") for entry in entries}
