"""A network that holds back what master and slave say: no send is called safe that is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.test_replication import Cluster, bodies, post, status, wait_following
from tests.support.broker_process import BrokerProcess
from tests.support.plain_log import read_log
from tests.support.tcp_proxy import Direction, TcpProxy
from tests.support.waiting import wait_until


class Parted:
    """A synchronous master and its slave, with a proxy between them."""

    def __init__(self, root: Path, on_exit: ExitStack) -> None:
        cluster = Cluster(root, on_exit)
        self.master = cluster.master()
        self.proxy = on_exit.enter_context(TcpProxy(status(self.master)["ha_port"]))
        arguments = ("--role", "slave", "--broker-id", "1", "--master", f"ha://127.0.0.1:{self.proxy.port}")
        self.slave: BrokerProcess = cluster.start("s", arguments)
        wait_following(self.master)

    def slave_has(self, body: str) -> bool:
        """Whether it lies in the files of the slave's log."""
        return body in [record.body.decode() for record in read_log(self.slave.store_path).records]


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Parted]:
    with ExitStack() as on_exit:
        yield Parted(tmp_path, on_exit)


@pytest.mark.parametrize(
    ("held", "arrives"),
    [(["to client"], False), (["to server"], True), (["to client", "to server"], False)],
    ids=["the log is held back", "the reports are held back", "both are"],
)
def test_send_that_no_slave_answered_for_is_not_ok(
    parted: Parted, held: list[Direction], arrives: bool
) -> None:
    assert post(parted.master, "before")["status"] == "SEND_OK"
    assert parted.slave_has("before")
    parted.proxy.hold(*held)
    assert post(parted.master, "held")["status"] == "FLUSH_SLAVE_TIMEOUT"
    assert bodies(parted.master) == ["before"], "nobody reads what may be taken back"
    if arrives:
        wait_until(lambda: parted.slave_has("held"), otherwise="the slave has it, only its word is missing")
    assert parted.slave_has("held") is arrives
    parted.proxy.hold()
    wait_until(lambda: sorted(bodies(parted.master)) == ["before", "held"], otherwise="it counts later")
    assert post(parted.master, "after")["status"] == "SEND_OK"
    assert parted.slave_has("after")


def test_connection_that_is_cut_makes_the_slave_unavailable_until_it_is_back(parted: Parted) -> None:
    parted.proxy.hold("to client", "to server")
    parted.proxy.cut()
    wait_until(lambda: not status(parted.master)["in_reach"], otherwise="the slave is gone")
    assert post(parted.master, "held")["status"] == "SLAVE_NOT_AVAILABLE"
    parted.proxy.hold()
    parted.proxy.cut()
    wait_following(parted.master)
    wait_until(lambda: bodies(parted.master) == ["held"], otherwise="it counts when the slave is back")
    for number in range(5):
        parted.proxy.cut()
        answer = post(parted.master, f"in between {number}")["status"]
        assert answer != "SEND_OK" or parted.slave_has(f"in between {number}")
    wait_until(lambda: len(bodies(parted.master)) == 6, otherwise="all count in the end")
