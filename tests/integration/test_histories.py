"""Clients that send, pull, commit and lease at the same time, over a broker that is killed in between.

Contract: all their answers together are those of one broker that does one thing after another: a client that
has the answer to a send can read the message, offsets never go back, an offset that was committed is read
until another one is, and nobody gets a lease that somebody holds (tests/support/history.py). So it is where a
synchronous master is killed and its slave is promoted, for who asks by a name server; a slave, and the
promoted one until it has slaves, may show less meanwhile.
LAKEMQ_HISTORY_SEEDS sets how many histories are made (default 1).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakemq import Client
from tests.support.broker_process import BrokerProcess
from tests.support.history import History, Pull, Send, Span
from tests.support.name_servers import BrokersOfCluster
from tests.support.recording_clients import READ, SENDS, TOPIC, RecordingClients
from tests.support.waiting import wait_until

SEEDS = range(int(os.environ.get("LAKEMQ_HISTORY_SEEDS", "1")))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_answers_are_those_of_one_broker_also_where_it_is_killed(
    start_broker: Callable[..., BrokerProcess], seed: int
) -> None:
    broker = start_broker()
    clients = RecordingClients(broker.endpoint, seed)
    clients.prepare()

    def restart() -> None:
        broker.kill()
        broker.start()

    check(clients, back=run(clients, restart))


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_all_answers_are_those_of_one_broker_also_where_its_slave_takes_its_place(
    tmp_path: Path, seed: int
) -> None:
    with BrokersOfCluster(tmp_path) as cluster:
        master = cluster.master("broker-a", "--role", "sync-master")
        slave = cluster.slave("broker-a")
        clients = RecordingClients(cluster.endpoint, seed)
        clients.prepare()

        def fail_over() -> None:
            clients.is_settled = False
            master.kill()
            with slave.client() as promoted:
                promoted.promote("sync-master")
                cluster.returned("broker-a", slave)
                wait_until(lambda: promoted.send(READ, "x").status == "SEND_OK")
            clients.is_settled = True

        check(clients, back=run(clients, fail_over))
        assert len({grant.owner for grant in clients.history.grants}) > 1


def test_a_failover_that_loses_what_was_answered_is_no_right_history(tmp_path: Path) -> None:
    """An asynchronous master answers before its slave has the message: the judge has to notice the loss."""
    history = History()

    def note(began: float, client: Client, body: str | None = None) -> None:
        if body is not None:
            sent = client.send(TOPIC, body, queue_id=0)
            history.sends.append(Send(Span(began, time.monotonic()), 0, body, sent.queue_offset))
        began = time.monotonic()
        found = client.pull(TOPIC, 0, 0)
        bodies = tuple((message.queue_offset, message.text) for message in found.messages)
        span = Span(began, time.monotonic())
        history.pulls.append(Pull(span, 0, 0, bodies, found.next_offset, found.max_offset))

    with BrokersOfCluster(tmp_path) as cluster:
        master = cluster.master("broker-a", "--role", "async-master")
        slave = cluster.slave("broker-a")
        with Client(cluster.endpoint, timeout_s=5) as client, slave.client() as promoted:
            client.put_topic(TOPIC, read_queue_nums=1, write_queue_nums=1)
            cluster.wait_for_topic(TOPIC, "broker-a")
            note(time.monotonic(), client, "replicated")
            wait_until(lambda: TOPIC in [topic.topic for topic in promoted.topics()])
            wait_until(lambda: promoted.queues(TOPIC)[0].confirmed_offset == 1)
            slave.kill()
            note(time.monotonic(), client, "not replicated")
            assert history.problems() == []
            master.kill()
            slave.start()
            promoted.promote("async-master", force=True)
            note(time.monotonic(), promoted)
            assert history.problems() == [
                "not replicated was answered, and a later pull ends at 1",
                "the queue ended at 2, and later at 1",
            ]
            note(time.monotonic(), promoted, "in its place")
            assert "offset 1 belongs to ['in its place', 'not replicated']" in history.problems()


def run(clients: RecordingClients, interrupt: Callable[[], None]) -> float:
    """Has all clients at work while the broker is interrupted; returns when it was back."""
    with ThreadPoolExecutor(16) as threads:
        try:
            ending = [threads.submit(clients.send, name) for name in range(3)]
            ending += [threads.submit(clients.commit, name) for name in range(2)]
            going_on = [threads.submit(clients.pull, name) for name in range(2)]
            going_on += [threads.submit(clients.lease, name) for name in range(3)]
            going_on.append(threads.submit(clients.look, 0))
            wait_until(lambda: clients.sent >= SENDS)
            interrupt()
            back = time.monotonic()
            clients.restarted.set()
            for each in ending:
                each.result(60)
            last = time.monotonic()
            wait_until(lambda: any(pull.span.began > last for pull in list(clients.history.pulls)))
        finally:
            clients.restarted.set()
            clients.done.set()
        for each in going_on:
            each.result(60)
    return back


def check(clients: RecordingClients, back: float) -> None:
    """Judges the history, and that enough happened in it."""
    history = clients.history
    assert history.problems() == []
    assert len(history.sends) == 3 * SENDS
    assert sum(send.offset is not None for send in history.sends) > SENDS
    assert any(send.span.began > back and send.offset is not None for send in history.sends)
    assert any(commit.span.began > back for commit in history.commits)
    assert len({grant.epoch for grant in history.grants}) > 1
    assert history.looks
    assert any(pull.bodies for pull in history.pulls)
