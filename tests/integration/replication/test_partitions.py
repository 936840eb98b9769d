"""A network that holds back what master and slave say: no send is called safe that is not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakemq.cli import app
from lakemq.client import Client, Unavailable
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.options import parse_read
from structured_streaming.readers.http import HttpReader
from structured_streaming.source.query_run import QueryRun
from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.metrics import Samples
from tests.support.plain_log import read_log
from tests.support.replicated_brokers import Cluster, bodies, post, status, wait_following
from tests.support.tcp_proxy import Direction, TcpProxy
from tests.support.waiting import wait_until


class Parted:
    """A synchronous master and its slave, with a proxy between them."""

    def __init__(self, root: Path, on_exit: ExitStack) -> None:
        self.cluster = cluster = Cluster(root, on_exit)
        self.master = cluster.master()
        self.proxy = on_exit.enter_context(TcpProxy(status(self.master)["ha_port"]))
        arguments = ("--role", "slave", "--broker-id", "1", "--master", f"ha://127.0.0.1:{self.proxy.port}")
        self.slave: BrokerProcess = cluster.start("s", (*arguments, "--ha-port", "0"))
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


def test_how_far_a_slave_is_behind_is_shown_in_bytes_and_seconds(
    parted: Parted, capsys: pytest.CaptureFixture[str]
) -> None:
    def samples(broker: BrokerProcess) -> Samples:
        return Samples(Http(broker.endpoint).get("//metrics").body.decode())

    def of_slave(name: str) -> float:
        (found,) = samples(parted.master).named(f"lakemq_replication_slave_{name}")
        assert found.labels["broker_id"] == "1"
        return found.value

    def of(broker: BrokerProcess, name: str) -> dict[str, float]:
        found = samples(broker).named(f"lakemq_replication_{name}")
        return {
            sample.labels.get("role") or sample.labels.get("mark") or "": sample.value for sample in found
        }

    assert post(parted.master, "x" * 50_000)["status"] == "SEND_OK"
    wait_until(lambda: of_slave("lag_bytes") == 0)
    assert of_slave("lag_seconds") == 0
    assert of_slave("bytes_per_second") > 100, "what it got just now"
    parted.proxy.hold("to client")
    end = post(parted.master, "held")
    assert end["status"] == "FLUSH_SLAVE_TIMEOUT"
    wait_until(lambda: of_slave("lag_seconds") > 1, otherwise="it grows while the slave has not got it")
    (shown,) = status(parted.master)["slaves"]
    assert shown["lag_bytes"] == of_slave("lag_bytes") > 0
    assert shown["lag_s"] > 1
    assert shown["acked"] == of_slave("acked_offset_bytes")
    assert of_slave("silent_seconds") < 20
    marks = of(parted.master, "log_offset_bytes")
    assert marks["appended"] == marks["flushed"] == shown["acked"] + shown["lag_bytes"]
    assert marks["confirmed"] == shown["acked"]
    assert of(parted.master, "role") == {"sync-master": 1, "async-master": 0, "slave": 0}
    assert of(parted.slave, "role")["slave"] == 1
    assert of(parted.master, "epoch") == of(parted.slave, "epoch") == {"": 1}
    assert of(parted.master, "in_reach") == of(parted.slave, "following") == {"": 1}
    assert of(parted.slave, "lag_bytes") == {"": 0}, "of what it heard of"
    ready = Http(parted.master.endpoint).get("//readyz").json["replication"]
    assert (ready["role"], ready["epoch"], ready["in_reach"]) == ("sync-master", 1, True)
    assert ready["slaves"][0]["lag_bytes"] == shown["lag_bytes"]
    assert ready["slaves"][0]["lag_s"] >= shown["lag_s"]
    ready = Http(parted.slave.endpoint).get("//readyz").json["replication"]
    assert (ready["role"], ready["following"], ready["lag_bytes"]) == ("slave", True, 0)
    assert app.main(["ha", "status", "--endpoint", parted.master.endpoint]) == 0
    lines = capsys.readouterr().out.splitlines()
    columns = next(line.split() for line in lines if line.startswith("broker_id"))
    row = dict(zip(columns, lines[-1].split(), strict=True))
    assert int(row["lag_bytes"]) == shown["lag_bytes"]
    assert float(row["lag_s"]) >= shown["lag_s"]
    assert float(row["bytes_per_s"]) >= 0
    parted.proxy.hold()
    wait_until(lambda: of_slave("lag_bytes") == 0 == of_slave("lag_seconds"))


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


def test_what_was_read_of_a_master_is_no_loss_where_its_successor_does_not_show_it_yet(
    parted: Parted,
) -> None:
    """The slave has the message, and the master was killed before it could say that it counts."""
    assert post(parted.master, "before")["status"] == "SEND_OK"
    with Client(parted.master.endpoint) as client:
        client.commit_offsets("g", {("t", 0): 0})
    wait_until(lambda: bodies(parted.slave) == ["before"])
    parted.proxy.hold("to server")
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(post, parted.master, "shown")
        wait_until(lambda: parted.slave_has("shown"))
        parted.proxy.hold("to client")
        assert sending.result(30)["status"] == "SEND_OK"
    with Client(parted.master.endpoint) as client:
        read_up_to = _planned(client, None)
    assert sum(read_up_to.queues.values()) == 2
    parted.master.kill()
    with Client(parted.slave.endpoint, retries=0) as client:
        client.promote("sync-master")
        assert bodies(parted.slave) == ["before"]
        assert _planned(client, read_up_to).queues == read_up_to.queues, "it waits where it is"
        assert all(queue.from_slave for queue in client.queues("t"))
        answers = client.slave_answers
        client.group_offsets("g")
        client.reset_offsets("g", "t", to="earliest", dry_run=True)
        assert client.slave_answers == answers + 2, "a group may have committed more than is shown"
        shown = next(queue for queue, end in read_up_to.queues.items() if not _holds(client, queue, end))
        with pytest.raises(Unavailable, match="was promoted a moment ago"):
            HttpReader(client).read("t", shown.queue_id, 0, read_up_to.queues[shown], ["body"], "*")
        returned = parted.cluster.slave(parted.slave, broker_id=2, name="m")
        wait_until(lambda: sorted(bodies(parted.slave)) == ["before", "shown"])
        assert not any(queue.from_slave for queue in client.queues("t"))
        answers = client.slave_answers
        client.group_offsets("g")
        assert client.slave_answers == answers
        assert _planned(client, read_up_to).queues == read_up_to.queues
        wait_until(lambda: sorted(bodies(returned)) == ["before", "shown"])


def _planned(client: Client, start: Offsets | None) -> Offsets:
    """Where the next batch of a query ends that fails at any loss, planned by a driver that just started."""
    given = {"endpoint": client.endpoint, "subscribe": "t", "startingOffsets": "earliest"}
    run = QueryRun(parse_read(given, streaming=True), HttpReader(client))
    return run.latest(run.initial() if start is None else start, None)


def _holds(client: Client, queue: MessageQueue, end: int) -> bool:
    return client.queues("t")[queue.queue_id].confirmed_offset >= end
