"""Clients that send, pull, commit and lease at the same time, and note what they were answered.

Owns the history of one broker name: that of one broker, or of a master and its slaves behind a name server.

Threads: each method runs on one of its own, given to the constructor's caller to start.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from urllib3.exceptions import HTTPError

from lakemq import Client
from lakemq.client import LakeMQError
from lakemq.client.routes import FIRST_REFRESH_S
from tests.support.history import FOR_EVER, Commit, Grant, History, Look, Pull, Release, Send, Span
from tests.support.http import Http

TOPIC = "orders"
READ = "read"
QUEUES = 2
SENDS = 150
BEHIND = 10
"""So many sends and commits of each client come when the broker is back, however fast the others were."""
COMMITS = 100
LEASE_MS = 200


class RecordingClients:
    """What each client does, and the history of it.

    Args:
        endpoint: A broker's, or a name server's.
        seed: Of what they do.

    Attributes:
        sent: Messages that were sent, answered or not.
        done: Ends those that go on until they are told.
        restarted: The broker is back, or another one in its place: who was not answered goes on.
        is_settled: False while a promoted master may lack commits of before; of messages it says so itself.
    """

    def __init__(self, endpoint: str, seed: int, broker_name: str = "broker-a") -> None:
        self.endpoint = endpoint
        self.seed = seed
        self.history = History()
        self.sent = 0
        self.done = threading.Event()
        self.restarted = threading.Event()
        self.is_settled = True
        self._broker_name = broker_name
        self._noting = threading.Lock()

    def prepare(self) -> None:
        """Makes topics and groups."""
        with self._client() as client:
            for topic in (TOPIC, READ):
                client.put_topic(topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            client.send_ndjson(READ, b'{"body":"x","queue_id":0}\n' * (2 * COMMITS + 1))
            client.put_group("reader")
            client.put_group("driver")

    def send(self, name: int) -> None:
        """Sends SENDS messages, one after the other; what is not as safe as asked counts as not answered."""
        pauses = _pauses()
        with self._client() as client:
            for number in range(SENDS):
                if number == SENDS - BEHIND:
                    self.restarted.wait()
                body, queue = f"{name}-{number}", (name + number) % QUEUES
                began = time.monotonic()
                send = Send(Span(began, FOR_EVER), queue, body, None)
                try:
                    result = client.send(TOPIC, body, queue_id=queue)
                    if result.status == "SEND_OK":
                        send = Send(Span(began, time.monotonic()), queue, body, result.queue_offset)
                except LakeMQError:
                    pass
                if send.offset is None and self.restarted.is_set():
                    self.done.wait(FIRST_REFRESH_S / 2)  # not until then are routes asked for again
                elif send.offset is None:
                    self.restarted.wait(next(pauses))
                with self._noting:
                    self.history.sends.append(send)
                    self.sent += 1

    def pull(self, name: int) -> None:
        """Pulls from the beginning or from where it was, at once or waiting, until told to end."""
        dice = random.Random(f"{self.seed} {name}")
        reached = [0] * QUEUES
        with self._broker() as client:
            while not self.done.is_set():
                queue = dice.randrange(QUEUES)
                offset = dice.choice([0, reached[queue]])
                answers = client.slave_answers
                began = time.monotonic()
                try:
                    found = client.pull(TOPIC, queue, offset, max=1_000, wait_ms=dice.choice([0, 50]))
                except LakeMQError:
                    continue
                span = Span(began, time.monotonic())
                bodies = tuple((message.queue_offset, message.body.decode()) for message in found.messages)
                reached[queue] = max(reached[queue], found.next_offset)
                self.history.pulls.append(
                    Pull(
                        span,
                        queue,
                        offset,
                        bodies,
                        found.next_offset,
                        found.max_offset,
                        client.slave_answers != answers,
                    )
                )

    def commit(self, name: int) -> None:
        """Commits COMMITS offsets, each once, at the master."""
        pauses = _pauses()
        with self._broker() as client:
            http: Http | None = None
            for number in range(COMMITS):
                if number == COMMITS - BEHIND:
                    self.restarted.wait()
                offset, began = 1 + 2 * number + name, time.monotonic()
                place = {"topic": READ, "queue_id": 0, "offset": offset}
                ended = FOR_EVER
                try:
                    client.group_offsets("reader")  # finds the master
                    if http is None or http.endpoint != client.endpoint:
                        http = Http(client.endpoint)
                    if http.put("/groups/reader/offsets", {"offsets": [place]}).status == 200:
                        ended = time.monotonic()
                except (LakeMQError, HTTPError):
                    self.restarted.wait(next(pauses))
                self.history.commits.append(Commit(Span(began, ended), 0, offset))
                self.done.wait(0.01)

    def look(self, _: int) -> None:
        """Looks where the group is, until told to end."""
        with self._broker() as client:
            while not self.done.is_set():
                answers, was_settled = client.slave_answers, self.is_settled
                began = time.monotonic()
                try:
                    offset = client.group_offsets("reader").get((READ, 0))
                except LakeMQError:
                    continue
                span = Span(began, time.monotonic())
                is_masters = client.slave_answers == answers and was_settled and self.is_settled
                self.history.looks.append(Look(span, 0, offset, may_be_behind=not is_masters))

    def lease(self, name: int) -> None:
        """Takes the lease when it can, and gives it back or lets it run out, until told to end."""
        dice = random.Random(f"{self.seed} lease {name}")
        owner = f"owner-{name}"
        with self._broker() as client:
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

    def _client(self) -> Client:
        return Client(self.endpoint, timeout_s=5, retries=0)

    @contextlib.contextmanager
    def _broker(self) -> Iterator[Client]:
        with self._client() as client:
            try:
                broker = client.broker(self._broker_name)
            except LakeMQError:  # a thread that began late meets the broker's death
                self.restarted.wait()
                broker = client.broker(self._broker_name)
            yield broker


def _pauses() -> Iterator[float]:
    """Against a broker that is down all that is left would be refused in an instant."""
    pause = 0.1
    while True:
        yield pause
        pause *= 2
