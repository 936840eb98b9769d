"""The start and the stop of processes with certificates.

Contract: files with which no client could connect end the start in one line that names them; what a client
would refuse is said in the log; a stop waits for nobody's goodbye.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakemq import broker_process
from lakemq.client import Client, LakeMQError
from lakemq.tls.files import TlsFiles
from tests.support.certificates import Authority, arguments
from tests.support.tls_cluster import Cluster


@pytest.mark.parametrize("command", ["serve", "nameserver"])
def test_a_start_with_an_unusable_certificate_is_one_line_that_names_the_file(
    authority: Authority, served: TlsFiles, tmp_path: Path, command: Any
) -> None:
    expired = authority.certificate(file="expired", days=-1)
    other = authority.certificate(file="other")
    nowhere = str(tmp_path / "nowhere.pem")
    wrong: dict[str, tuple[str, ...]] = {
        f"tls.cert: {expired.cert} would be refused: certificate has expired": arguments(expired),
        f"tls.key: {other.key} is not the key of": ("--tls-cert", served.cert, "--tls-key", other.key),
        f"tls.cert: {nowhere} cannot be read": ("--tls-cert", nowhere, "--tls-key", served.key),
        f"tls.ca: {nowhere} cannot be read": ("--tls-ca", nowhere),
        "tls.key: is missing": ("--tls-cert", served.cert),
    }
    for number, (said, words) in enumerate(wrong.items()):
        store = ("--store", str(tmp_path / "store")) if command == "serve" else ()
        log = tmp_path / f"{number}.log"
        process = broker_process.BrokerProcess(["--port", "0", *store, *words], log, command=command)
        with pytest.raises(broker_process.NotReady) as ended:
            process.wait_ready()
        assert ended.value.exit_code not in (0, None)
        assert said in log.read_text()
        assert "Traceback" not in log.read_text()
    assert not (tmp_path / "store").exists()


def test_a_certificate_for_another_address_than_the_brokers_is_warned_of_at_the_start(
    cluster: Cluster, served: TlsFiles, elsewhere: TlsFiles
) -> None:
    warning = "the certificate is not for the address"
    log = cluster.start("m", files=elsewhere).log()
    assert warning in log
    assert 'address=127.0.0.1 names="127.0.0.2, elsewhere.example"' in log
    there = ("--http.advertised_address", "elsewhere.example")
    assert warning not in cluster.start("there", *there, files=elsewhere).log()
    assert warning not in cluster.start("fits", files=served).log()


def test_a_certificate_for_another_address_than_the_name_servers_is_warned_of_at_the_start(
    cluster: Cluster, served: TlsFiles, elsewhere: TlsFiles
) -> None:
    warning = "the certificate is not for the address"
    assert cluster.name_server(elsewhere).log().count(warning) == 1
    assert cluster.name_server(served).log().count(warning) == 1, "both write one log"


def test_a_stop_waits_for_no_goodbye(cluster: Cluster, served: TlsFiles) -> None:
    """Clients that keep connections, idle and in a long poll, do not hold up a stop."""
    process = cluster.start("m", files=served)
    with Client(process.endpoint, ca_file=served.ca) as client:
        client.put_topic("t", read_queue_nums=1, write_queue_nums=1)
        ended = threading.Event()

        def wait() -> None:
            with contextlib.suppress(LakeMQError):
                client.pull("t", 0, 0, wait_ms=30_000)
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        began = time.monotonic()
        assert process.stop() == 0
        assert time.monotonic() - began < 10
        assert ended.wait(30)
        thread.join()
