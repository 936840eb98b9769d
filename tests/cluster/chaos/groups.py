"""Groups under load: one that only commits offsets, and one whose lease owners take from each other.

Owns the histories of both; tests/support/history.py judges them.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from urllib3.exceptions import HTTPError

from lakemq.client import LakeMQError
from tests.cluster.chaos.load import Job
from tests.cluster.chaos.node import Node
from tests.support.history import (
    FOR_EVER,
    Commit,
    FencedCommit,
    Grant,
    History,
    Look,
    Release,
    Span,
)
from tests.support.http import Http

TOPIC: Final = "chaos-read"
MESSAGES: Final = 6_000
"""In the topic, since no group commits behind the end of its queue; when all are committed, no more are."""
AT_ONCE: Final = 1_000
OWNERS: Final = ("owner-0", "owner-1", "owner-2")
LEASE_MS: Final = 300
CALL_S: Final = 1.0
"""A master without slaves grants nothing, and says so after 5 s only."""


class _Group:
    """One group and what was done with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.history = History()
        self._numbers = itertools.count(1)

    def commit(self, http: Http, epoch: int | None = None) -> None:
        """Commits the next number; under the lease's epoch where it has one."""
        offset, began = next(self._numbers), time.monotonic()
        if offset > MESSAGES:
            return
        place = {"topic": TOPIC, "queue_id": 0, "offset": offset}
        fields = {} if epoch is None else {"lease_epoch": epoch}
        try:
            status = http.put(f"/groups/{self.name}/offsets", {"offsets": [place], **fields}).status
        except HTTPError:
            status = 0
        ended = time.monotonic()
        assert status in (0, 200, 202, 409, 503), f"a commit was answered {status}"
        if status == 409:
            return  # its epoch is over: nothing was stored
        # 202: not with enough slaves, so it may go with the master.
        self.history.commits.append(Commit(Span(began, ended if status == 200 else FOR_EVER), 0, offset))
        if epoch is not None and status in (200, 202):
            self.history.fenced.append(FencedCommit(Span(began, ended), epoch))

    def look(self, master: Node) -> None:
        """Notes where the group is."""
        began = time.monotonic()
        with master.client() as client:
            offset = client.group_offsets(self.name).get((TOPIC, 0))
            # A master that was promoted says so until enough slaves have the end of its log.
            may_be_behind = client.slave_answers > 0
        self.history.looks.append(Look(Span(began, time.monotonic()), 0, offset, may_be_behind))

    def problems(self) -> list[str]:
        return [f"group {self.name}: {problem}" for problem in self.history.problems()[:5]]


class Groups:
    """Both groups.

    Args:
        seed: of what the owners do.
        kinds: `offsets`, `leases` or both.
    """

    def __init__(self, seed: int, kinds: Sequence[str]) -> None:
        self._random = random.Random(f"{seed} groups")
        self._plain = _Group("chaos") if "offsets" in kinds else None
        self._leased = _Group("chaos-leased") if "leases" in kinds else None

    @property
    def _groups(self) -> list[_Group]:
        return [group for group in (self._plain, self._leased) if group is not None]

    def prepare(self, master: Node) -> None:
        with master.client() as client:
            client.put_topic(TOPIC, read_queue_nums=1, write_queue_nums=1)
            for _ in range(0, MESSAGES, AT_ONCE):
                client.send_ndjson(TOPIC, b'{"body":"x"}\n' * AT_ONCE)
            for group in self._groups:
                client.put_group(group.name)

    def jobs(self, master: Node, slaves: Sequence[Node]) -> list[Job]:
        jobs: list[Job] = [partial(self._look, master)]
        if self._plain is not None:
            jobs.append(partial(self._commit, self._plain, master))
        if self._leased is not None:
            seed = self._random.random()
            jobs += [partial(self._drive, self._leased, owner, seed, master) for owner in OWNERS]
        return jobs

    def problems(self, master: Node) -> list[str]:
        for group in self._groups:
            group.look(master)
        return [problem for group in self._groups for problem in group.problems()]

    def problems_at_end(self, master: Node) -> list[str]:
        if self._leased is not None and len({one.owner for one in self._leased.history.grants}) < 2:
            return [f"fewer than two owners had the lease of {self._leased.name}: it was not tried"]
        return []

    def _look(self, master: Node, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            for group in self._groups:
                with contextlib.suppress(LakeMQError):
                    group.look(master)

    def _commit(self, group: _Group, master: Node, stop: threading.Event) -> None:
        http = Http(master.endpoint)
        while not stop.wait(0.005):
            group.commit(http)

    def _drive(self, group: _Group, owner: str, seed: float, master: Node, stop: threading.Event) -> None:
        """Takes the lease, commits under it, at times when it has run out, and gives it back, at times."""
        dice = random.Random(f"{seed} {owner}")
        http = Http(master.endpoint)
        with master.client(CALL_S) as client:
            while not stop.wait(0.02):
                began = time.monotonic()
                try:
                    epoch = client.acquire_lease(group.name, owner, LEASE_MS).epoch
                except LakeMQError:
                    continue
                until = began + LEASE_MS / 1000
                group.history.grants.append(Grant(Span(began, time.monotonic()), owner, epoch, until))
                for _ in range(dice.randrange(3)):
                    group.commit(http, epoch)
                if dice.random() < 0.2:
                    stop.wait(LEASE_MS / 1000)
                    group.commit(http, epoch)
                if dice.random() < 0.4:
                    group.history.releases.append(Release(time.monotonic(), owner))
                    with contextlib.suppress(LakeMQError):
                        client.release_lease(group.name, owner)
