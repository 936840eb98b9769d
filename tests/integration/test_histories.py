"""Clients that send, pull, commit and lease at the same time, over a broker that is killed in between.

Contract: all their answers together are those of one broker that does one thing after another: a client that
has the answer to a send can read the message, offsets never go back, an offset that was committed is read
until another one is, and nobody gets a lease that somebody holds (tests/support/history.py).
LAKEMQ_HISTORY_SEEDS sets how many histories are made (default 1).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemq import Client
from lakemq.client import LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.history import FOR_EVER, Commit, Grant, History, Look, Pull, Release, Send, Span
from tests.support.waiting import wait_until

TOPIC = "orders"
QUEUES = 2
SENDS = 150
COMMITS = 100
LEASE_MS = 200
SEEDS = range(int(os.environ.get("LAKEMQ_HISTORY_SEEDS", "1")))


class Clients:
    """What each client does, and the history of it."""

    def __init__(self, endpoint: str, seed: int) -> None:
        self.endpoint = endpoint
        self.seed = seed
        self.history = History()
        self.sent = 0
        self.done = threading.Event()
        self.restarted = threading.Event()
        self._noting = threading.Lock()

    def client(self) -> Client:
        return Client(self.endpoint, timeout_s=5, retries=0)

    def send(self, name: int) -> None:
        with self.client() as client:
            for number in range(SENDS):
                body, queue = f"{name}-{number}", (name + number) % QUEUES
                began = time.monotonic()
                try:
                    offset = client.send(TOPIC, body, queue_id=queue).queue_offset
                    send = Send(Span(began, time.monotonic()), queue, body, offset)
                except LakeMQError:
                    send = Send(Span(began, FOR_EVER), queue, body, None)
                    # Against a broker that is down all the rest would be refused in an instant.
                    self.restarted.wait(60)
                with self._noting:
                    self.history.sends.append(send)
                    self.sent += 1

    def pull(self, name: int) -> None:
        dice = random.Random(f"{self.seed} {name}")
        reached = [0] * QUEUES
        with self.client() as client:
            while not self.done.is_set():
                queue = dice.randrange(QUEUES)
                offset = dice.choice([0, reached[queue]])
                began = time.monotonic()
                try:
                    found = client.pull(TOPIC, queue, offset, max=1_000, wait_ms=dice.choice([0, 50]))
                except LakeMQError:
                    continue
                bodies = tuple((message.queue_offset, message.body.decode()) for message in found.messages)
                reached[queue] = found.next_offset
                self.history.pulls.append(
                    Pull(
                        Span(began, time.monotonic()),
                        queue,
                        offset,
                        bodies,
                        found.next_offset,
                        found.max_offset,
                    )
                )

    def commit(self, name: int) -> None:
        with self.client() as client:
            for number in range(COMMITS):
                offset, began = 1 + 2 * number + name, time.monotonic()
                try:
                    client.commit_offsets("reader", {("read", 0): offset})
                    ended = time.monotonic()
                except LakeMQError:
                    ended = FOR_EVER
                self.history.commits.append(Commit(Span(began, ended), 0, offset))

    def look(self, _: int) -> None:
        with self.client() as client:
            while not self.done.is_set():
                began = time.monotonic()
                try:
                    offset = client.group_offsets("reader").get(("read", 0))
                except LakeMQError:
                    continue
                self.history.looks.append(Look(Span(began, time.monotonic()), 0, offset))

    def lease(self, name: int) -> None:
        dice = random.Random(f"{self.seed} lease {name}")
        owner = f"owner-{name}"
        with self.client() as client:
            while not self.done.is_set():
                began = time.monotonic()
                try:
                    epoch = client.acquire_lease("driver", owner, LEASE_MS).epoch
                except LakeMQError:
                    continue
                span, until = Span(began, time.monotonic()), began + LEASE_MS / 1000
                self.history.grants.append(Grant(span, owner, epoch, until))
                if dice.random() < 0.5:
                    self.history.releases.append(Release(time.monotonic(), owner))
                    with contextlib.suppress(LakeMQError):
                        client.release_lease("driver", owner)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_answers_are_those_of_one_broker_also_where_it_is_killed(
    start_broker: Callable[..., BrokerProcess], seed: int
) -> None:
    broker = start_broker()
    with broker.client() as client:
        for topic in (TOPIC, "read"):
            client.put_topic(topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        client.send_ndjson("read", b'{"body":"x","queue_id":0}\n' * (2 * COMMITS + 1))
        client.put_group("reader")
        client.put_group("driver")
    clients = Clients(broker.endpoint, seed)
    with ThreadPoolExecutor(16) as threads:
        try:
            ending = [threads.submit(clients.send, name) for name in range(3)]
            ending += [threads.submit(clients.commit, name) for name in range(2)]
            going_on = [threads.submit(clients.pull, name) for name in range(2)]
            going_on += [threads.submit(clients.lease, name) for name in range(3)]
            going_on.append(threads.submit(clients.look, 0))
            wait_until(lambda: clients.sent >= SENDS)
            broker.kill()
            broker.start()
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
    history = clients.history
    assert history.problems() == []
    assert len(history.sends) == 3 * SENDS
    assert sum(send.offset is not None for send in history.sends) > SENDS
    assert any(send.span.began > back and send.offset is not None for send in history.sends)
    assert len({grant.epoch for grant in history.grants}) > 1
    assert history.looks
    assert any(pull.bodies for pull in history.pulls)
