"""A master and two slaves in one process, over a network and disks that fail, driven by a seed.

Contract: whatever is cut, delayed, changed or killed, a message that a synchronous master acknowledged is in
the log of every later master; two logs never differ below what both have confirmed; nothing is invented.
`LAKEMQ_LINK_SEEDS` sets the number of seeds, from `LAKEMQ_LINK_FIRST` on; `LAKEMQ_LINK_SEED` runs one alone.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from ha_replicator.identity import BrokerIdentity, LinkClosed, next_epoch
from ha_replicator.link_limits import LinkLimits
from ha_replicator.link_opening import LinkOpening
from ha_replicator.master.catch_up import CatchUp, CatchUpRate
from ha_replicator.master.link import MasterLink
from ha_replicator.master.replicas import Replicas
from ha_replicator.slave.link import SlaveLink
from ha_replicator.wire.credentials import Credentials
from store_native.errors import LakeMQError
from tests.support.linked_brokers import NotedMemory
from tests.support.model_log import ModelLog

LIMITS = LinkLimits(range_bytes=60, max_range_bytes=4096, window_bytes=300)
SECRET = Credentials(b"a secret of the cluster")
STEPS = 250
NODES = 3
MOST_ROUNDS = 2000
ROUNDS_TOGETHER = 50
"""Rounds of exchange in which brokers that came together stay so."""


class Node:
    """One broker."""

    def __init__(self, broker_id: int, *, master: bool) -> None:
        self.broker_id = broker_id
        self.log = ModelLog(is_master=master, asks=master)
        self.up = True
        self.replicas = Replicas(self.log, needed=1)

    @property
    def rate(self) -> CatchUpRate:
        return CatchUpRate(1000.0, self.replicas, near_bytes=120)

    @property
    def me(self) -> BrokerIdentity:
        return BrokerIdentity("c", "a", 0 if self.log.is_master else self.broker_id + 1)


class Connection:
    """Bytes under way between a slave and a master."""

    def __init__(self, master: Node, slave: Node, chance: Random, now: float) -> None:
        nonce = f"{chance.getrandbits(128):032x}"
        self.master_node, self.slave_node = master, slave
        opening = LinkOpening(
            master.me, SECRET, shape="alike", limits=LIMITS, local_peer=True, nonce=nonce, now=now
        )
        self.master = MasterLink(
            opening, master.log, flush="sync", catch_up=CatchUp(master.rate, NotedMemory())
        )
        me = BrokerIdentity("c", "a", slave.broker_id + 1)
        self.slave = SlaveLink(replace(opening, me=me, nonce=nonce[::-1]), slave.log)
        self.to_master = bytearray(b"".join(self.slave.begin()))
        self.to_slave = bytearray()


class Simulation:
    """What happens is drawn from a seed; what must hold is looked at after each step."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 0.0
        self.nodes = [Node(at, master=at == 0) for at in range(NODES)]
        self.master = self.nodes[0]
        self.connections: list[Connection] = []
        self.sent: dict[bytes, int] = {}
        self.waiting: dict[bytes, int] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.promotions = 0

    def run(self) -> None:
        acts = [self.send] * 6 + [self.flush] * 8 + [self.carry] * 30 + [self.connect] * 4
        acts += [self.cut, self.crash, self.change, self.start, self.start, self.promote, self.wait]
        for _ in range(STEPS):
            self.chance.choice(acts)()
            self.look()
        self.heal()

    def send(self) -> None:
        if self.master.up:
            body = b"%d:%s\n" % (len(self.sent), b"x" * self.chance.randint(0, 40))
            self.sent[body] = self.waiting[body] = self.master.log.send(body)

    def flush(self) -> None:
        node = self.chance.choice(self.nodes)
        if node.up:
            node.log.flush()

    def connect(self) -> None:
        slave = self.chance.choice(self.nodes)
        if slave is self.master or not (slave.up and self.master.up) or slave.log.flushed < slave.log.end:
            return
        if any(c.slave_node is slave for c in self.connections):
            return
        self.connections.append(Connection(self.master, slave, self.chance, self.now))

    def carry(self) -> None:
        if self.connections:
            self.exchange(self.chance.choice(self.connections), self.chance.choice([1, 20, 100, 1000]))

    def exchange(self, connection: Connection, at_most: int) -> None:
        """Carries some bytes each way; what is wrong ends the connection."""
        master, slave = connection.master, connection.slave
        try:
            if data := bytes(connection.to_master[:at_most]):
                del connection.to_master[:at_most]
                following = master.following
                connection.to_slave += b"".join(master.receive(data, self.now))
                if master.following and not following:
                    connection.master_node.replicas.joined(master)
                connection.master_node.replicas.reported()
            connection.to_slave += b"".join(master.pump(self.now))
            if data := bytes(connection.to_slave[:at_most]):
                del connection.to_slave[:at_most]
                connection.to_master += b"".join(slave.receive(data, self.now))
                if slave.cut_at is not None:
                    connection.slave_node.log.truncate_to(slave.cut_at)
                    connection.to_master += b"".join(slave.cut(self.now))
            connection.to_master += b"".join(slave.report(self.now))
        except LinkClosed:
            self.close(connection)
        except LakeMQError as error:
            raise AssertionError(f"the log refused: {error}") from error

    def close(self, connection: Connection) -> None:
        connection.master_node.replicas.left(connection.master)
        if connection in self.connections:
            self.connections.remove(connection)

    def cut(self) -> None:
        if self.connections:
            self.close(self.chance.choice(self.connections))

    def change(self) -> None:
        """A bit flips on the way."""
        if self.connections:
            connection = self.chance.choice(self.connections)
            stream = self.chance.choice([connection.to_master, connection.to_slave])
            if stream:
                stream[self.chance.randrange(len(stream))] ^= 1 << self.chance.randrange(8)

    def crash(self) -> None:
        node = self.chance.choice(self.nodes)
        if node.up:
            node.up = False
            node.log.crash(self.chance, power=self.chance.random() < 0.5)
            if node is self.master:
                self.waiting.clear()  # nobody is answered any more
            for connection in [c for c in self.connections if node in (c.master_node, c.slave_node)]:
                self.close(connection)

    def start(self) -> None:
        node = self.chance.choice(self.nodes)
        if not node.up:
            self.start_node(node)

    def start_node(self, node: Node) -> None:
        node.up = True
        node.log.start(master=node is self.master, asks=True)
        node.replicas = Replicas(node.log, needed=1)

    def promote(self) -> None:
        """What an operator does: the master is gone, all slaves answer, the one with the most is taken."""
        slaves = [node for node in self.nodes if node is not self.master]
        if self.master.up or not all(node.up for node in slaves):
            return
        best = max(slaves, key=lambda node: (node.log.starts[-1][0], node.log.end))
        best.log.flush()
        best.log.become_master(next_epoch(best.log.seen, best.broker_id + 1), True)
        best.replicas = Replicas(best.log, needed=1)
        for connection in [c for c in self.connections if best in (c.master_node, c.slave_node)]:
            self.close(connection)
        self.master = best
        self.waiting.clear()
        self.promotions += 1

    def wait(self) -> None:
        self.now += self.chance.choice([0.5, 3.0, 12.0, 25.0])

    def look(self) -> None:
        if self.master.up:
            confirmed = self.master.log.confirmed
            for body, end in list(self.waiting.items()):
                if end <= confirmed:
                    self.acknowledged[body] = end
                    del self.waiting[body]
            log = self.master.log.bytes_of(0, self.master.log.end)
            for body, end in self.acknowledged.items():
                assert log[end - len(body) : end] == body, f"{body!r} was acknowledged"
        for node in self.nodes:
            assert node.log.confirmed <= node.log.flushed <= node.log.end
            assert all(request.data in self.sent for request in node.log.requests), "nothing is invented"
        for one, other in combinations([node.log.bytes_of(0, node.log.confirmed) for node in self.nodes], 2):
            both = min(len(one), len(other))
            assert one[:both] == other[:both], "below what both confirmed"
        assert sum(node.log.is_master and node.up for node in self.nodes) <= 1

    def heal(self) -> None:
        """Without faults all come together."""
        for connection in list(self.connections):
            self.close(connection)
        for node in self.nodes:
            if not node.up:
                self.start_node(node)
        self.now += 1.0
        for node in self.nodes:
            node.log.flush()
            if node is not self.master:
                self.connections.append(Connection(self.master, node, self.chance, self.now))
        together = 0
        for _ in range(MOST_ROUNDS):
            self.now += 0.005
            for connection in list(self.connections):
                self.exchange(connection, 10_000)
            for node in self.nodes:
                node.log.flush()
            together = together + 1 if self.are_together() else 0
            if together == ROUNDS_TOGETHER:
                break
        assert len(self.connections) == NODES - 1, "all follow"
        self.look()
        assert self.are_together(), [(node.log.end, node.log.confirmed) for node in self.nodes]

    def are_together(self) -> bool:
        """Whether all logs are the master's, to the last byte, and all of it is confirmed."""
        log = self.master.log.bytes_of(0, self.master.log.end)
        return all(
            (node.log.end, node.log.confirmed) == (len(log), len(log))
            and node.log.bytes_of(0, len(log)) == log
            for node in self.nodes
        )


def seeds() -> range:
    if one := os.environ.get("LAKEMQ_LINK_SEED"):
        return range(int(one), int(one) + 1)
    first = int(os.environ.get("LAKEMQ_LINK_FIRST", "0"))
    return range(first, first + int(os.environ.get("LAKEMQ_LINK_SEEDS", "150")))


def test_nothing_acknowledged_is_lost_whatever_fails() -> None:
    acknowledged = promotions = 0
    for seed in seeds():
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acknowledged += len(simulation.acknowledged)
        promotions += simulation.promotions
    assert acknowledged > len(seeds()), "the runs acknowledge"
    if len(seeds()) > 10:
        assert promotions > len(seeds()) // 4, "and promote"


@pytest.mark.parametrize("broken", ["report beyond what was sent", "report that goes back"])
def test_forged_report_ends_the_connection(broken: str) -> None:
    simulation = Simulation(1)
    simulation.send()
    simulation.flush()
    for node in simulation.nodes:
        node.log.flush()
    connection = Connection(simulation.master, simulation.nodes[1], simulation.chance, 0.0)
    simulation.connections.append(connection)
    while connection.master.acked < simulation.master.log.end:
        simulation.exchange(connection, 10_000)
        simulation.nodes[1].log.flush()
    link, end = connection.master, connection.master.acked
    from ha_replicator.wire.frames import Frame, FrameKind

    offset = end + 10 if broken.endswith("sent") else end - 1
    with pytest.raises(LinkClosed, match="OFFSET_ILLEGAL"):
        link.receive(Frame(FrameKind.REPORT, offset, offset, 0, 1, 0).header(), 0.0)
    assert simulation.master.log.confirmed == end
