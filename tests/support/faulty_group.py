"""A group whose ledger's commits fail when a test says so, and what has to hold of it at any time.

Owns what was sent to it, what its handler was called with, and how the ledger and the broker are held against
that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger_query import select
from delta_tables.table import Table
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.reactions import NAME, ReactionJob
from jobs.runtime.batch_gate import BatchGate
from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.runtime.job_lease import job_lease
from jobs.runtime.lease_owner import LeaseOwner
from jobs.runtime.started_stream import StartedStream
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from store_native.errors import LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.faulty_ledger import CommitFaults, InjectedError, When, with_faults
from tests.support.spark_streams import TRIGGER, forget_last_commit
from tests.support.two_drivers import WAIT_S, Driver
from tests.support.waiting import wait_until

Fates = dict[str, tuple[str, ...]]
"""What becomes of a message by its body: the verdict of each attempt."""

HANDLER = """
import pathlib
from lakemq.handler import Verdict

def handle(message):
    with (pathlib.Path({directory!r}) / "calls").open("a") as calls:
        calls.write(f"{{message.queue_id}}/{{message.queue_offset}}/{{message.attempt}}\\n")
    if message.text == "given up":
        return Verdict.dead("no")
    if message.text == "fails" or message.text == "comes again" and message.attempt == 1:
        raise ValueError(message.text)
"""
FATES: Fates = {
    "accepted": ("ACK",),
    "given up": ("DEAD",),
    "comes again": ("RETRY", "ACK"),
    "fails": ("RETRY", "DEAD"),
}
BROADCAST: Fates = {fate: ("ACK" if verdicts == ("ACK",) else "DROPPED",) for fate, verdicts in FATES.items()}
BROADCAST["comes again"] = ("DROPPED",)

Position = tuple[int, int]
"""Queue and offset of an original message."""


@dataclass(frozen=True)
class Commit:
    """One of a run's commits: the first to `deliveries` and to `dead_letters` sets the fence."""

    table: Table
    number: int


FENCES = (Commit(DELIVERIES, 1), Commit(DEAD_LETTERS, 1))
OF_THE_GROUP = (FENCES[0], Commit(DELIVERIES, 2), Commit(CONSUMER_OFFSETS, 1))
OF_DEAD_LETTERS = (FENCES[1], Commit(DEAD_LETTERS, 2))
IN_BROADCAST = (Commit(DELIVERIES, 1), Commit(CONSUMER_OFFSETS, 1))
BEFORE_AND_AFTER: tuple[When, ...] = ("before", "after")


class Group:
    """A group, what was sent to it, and what the ledger has to say of it.

    Args:
        spark: The session.
        broker: The broker.
        ledger: Where the group's tables are.
        directory: Of checkpoint, handler and the list of its calls.
        mode: Concurrent or broadcast.
        retry_delays: When what failed comes again.
        read_at: Where the ledger's files are, read without Spark: its queries cost more than the group.
    """

    def __init__(
        self,
        spark: SparkSession,
        broker: BrokerProcess,
        ledger: LedgerLocation,
        directory: Path,
        mode: Any,
        retry_delays: str = "1s",
        read_at: LedgerLocation | None = None,
    ) -> None:
        self.faults = CommitFaults()
        self._read_at = read_at or ledger
        self._spark = spark
        self._client: Client = broker.client()
        self._ledger = with_faults(ledger, self.faults)
        self._calls = directory / "calls"
        self._topic = f"faulty-{directory.name}"[:60]
        self._group = f"group-of-{self._topic}"
        self._fates: dict[Position, str] = {}
        self._settled: dict[tuple[int, int, int], int] = {}
        self._checkpoint = directory / "checkpoint"
        self._client.put_topic(self._topic, read_queue_nums=2, write_queue_nums=2)
        self._client.put_group(self._group)
        for topic in (f"%RETRY%{self._group}", f"%DLQ%{self._group}"):
            self._client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
        module = f"handlers_{directory.name}"
        (directory / f"{module}.py").write_text(HANDLER.format(directory=str(directory)))
        self._settings = ConsumeSettings(
            group=self._group,
            topics=(self._topic,),
            handler=HandlerTarget(f"{module}:handle", "auto", (str(directory),)),
            ledger=self._ledger,
            checkpoint=self._checkpoint,
            endpoint=broker.endpoint,
            start="earliest",
            max_reconsume_times=None if mode == "broadcast" else 1,
            retry_delays=None if mode == "broadcast" else retry_delays,
            trigger=TRIGGER,
            mode=mode,
            until_idle_s=0.2,
        )

    def post(self) -> None:
        """Sends a message of each fate, to the queues in turn."""
        first = len(self._fates)
        lines = []
        for number, fate in enumerate(FATES, start=first):
            queue = (number + number // 4) % 2  # no fate stays on one queue
            offset = sum(1 for other, _ in self._fates if other == queue)
            self._fates[queue, offset] = fate
            lines.append(f'{{"body":"{fate}","queue_id":{queue}}}')
        self._client.send_ndjson(self._topic, "\n".join(lines).encode())

    def run(self) -> None:
        """Runs the whole group until it is idle or fails."""
        consume(self._settings, lambda: self._spark)

    def fail(self, commit: Commit, when: When) -> None:
        """Runs the whole group until a commit fails."""
        self.faults.arm(commit.table, commit.number, when)
        with pytest.raises((LakeMQError, InjectedError), match=_said(commit, when)):
            self.run()

    def fail_alone(self, commit: Commit, when: When) -> None:
        """Runs the group's stream until a commit fails."""
        self.faults.arm(commit.table, commit.number, when)
        if commit == FENCES[0]:  # the fence is taken before the stream starts
            with pytest.raises(InjectedError, match=_said(commit, when)):
                Driver(self._spark, self._client, self._settings, self._checkpoint)
            return
        driver = Driver(self._spark, self._client, self._settings, self._checkpoint)
        try:
            assert _said(commit, when) in driver.await_end()
        finally:
            driver.stop()

    @contextmanager
    def reactions_alone(self, job: type[ReactionJob] = ReactionJob) -> Iterator[StartedStream]:
        """Runs the stream over what failed."""
        lease = job_lease(self._client, self._group, LeaseOwner.here("alone"), 600_000)
        lease.acquire()
        try:
            session = self._spark.newSession()
            consumer = job(session, self._settings, self._client.endpoint, BatchGate(), lease)
            stream = StartedStream(consumer.start)
            try:
                yield stream
            finally:
                stream.stop()
        finally:
            lease.release()

    def fail_dead_letters(self, commit: Commit, when: When) -> None:
        """Runs the reactions stream until a commit of the dead letters fails."""
        self.faults.arm(commit.table, commit.number, when)
        with self.reactions_alone() as stream:
            wait_until(lambda: not stream.goes_on(), WAIT_S, "the commit did not fail")
            assert _said(commit, when) in str(stream.failure())

    def react(self, job: type[ReactionJob] = ReactionJob) -> StreamingQueryException | None:
        """Runs the reactions over what is there; returns what they failed of."""
        self._settings = replace(self._settings, available_now=True, until_idle_s=None)
        with self.reactions_alone(job) as stream:
            wait_until(lambda: not stream.goes_on(), WAIT_S, "they do not end")
            return stream.failure()

    def forget_commit(self) -> None:
        """Lets the reactions' last batch be repeated."""
        forget_last_commit(self._checkpoint / NAME)

    def all_due(self) -> bool:
        """Whether the time of all retries has come."""
        ((due,),) = self._rows("SELECT max(next_attempt_at) FROM pending_retries")
        return bool(due <= datetime.now(UTC))

    def react_without_a_commit(self) -> None:
        """Runs the reactions stream, which ends when all is sent, before Spark's own commit."""
        checkpoint = self._checkpoint / NAME
        with self.reactions_alone() as stream:

            def is_through() -> bool:
                assert stream.goes_on(), stream.failure()
                return (
                    sum(self._sent(f"%RETRY%{self._group}").values()) > 0
                    and StreamCheckpoint(checkpoint).last_committed()
                    == StreamCheckpoint(checkpoint).last_planned()
                )

            wait_until(is_through, WAIT_S, "no retry was sent")
        forget_last_commit(checkpoint)

    def sent_back(self) -> tuple[int, int]:
        """How many retries and dead letters were sent."""
        retries, dead = (self._sent(f"%{kind}%{self._group}").total() for kind in ("RETRY", "DLQ"))
        return retries, dead

    def check_safe(self) -> None:
        """Holds what is committed now against what has to hold at any time."""
        rows = self._rows(
            "SELECT topic, queue_id, queue_offset, attempt, verdict, source_topic, source_queue_id, "
            "source_queue_offset FROM deliveries"
        )
        keys = [row[:4] for row in rows]
        assert len(keys) == len(set(keys)), "a delivery key has two rows"
        outcomes = {row[5:] for row in rows}
        reported = self._rows(
            "SELECT topic, queue_id, begin_offset, next_offset FROM consumer_offsets ORDER BY 1, 2, 3"
        )
        reached: dict[tuple[str, int], int] = {}
        for topic, queue, begin, end in reported:
            assert begin == reached.get((topic, queue), 0), "the reports of a queue leave a gap, or overlap"
            reached[topic, queue] = end
        committed = self._client.group_offsets(self._group)
        for (topic, queue), end in (*reached.items(), *committed.items()):
            missing = [at for at in range(end) if (topic, queue, at) not in outcomes]
            assert not missing, f"{topic}/{queue} is reported up to {end} without outcomes at {missing}"
        for (topic, queue), end in committed.items():
            assert end <= reached.get((topic, queue), 0), "the broker has it before the ledger"
        calls = self._called()
        for key, count in self._settled.items():
            assert calls[key] == count, f"{key} was in the ledger and is handled again"
        self._settled = {(queue, at, attempt): calls[queue, at, attempt] for _, queue, at, attempt in keys}
        assert all(self._settled.values()), "a row without a call"
        if self._settings.mode == "concurrent":
            for topic in (f"%RETRY%{self._group}", f"%DLQ%{self._group}"):
                sent = self._sent(topic)
                assert max(sent.values(), default=1) == 1, f"{topic} has a message twice: {sent}"

    def check_done(self, fates: Fates) -> None:
        """Holds what is committed at the end against what was sent."""
        self.check_safe()
        rows = self._rows("SELECT queue_id, queue_offset, attempt, verdict FROM deliveries")
        assert sorted(rows) == sorted(
            (queue, offset, attempt, verdict)
            for (queue, offset), fate in self._fates.items()
            for attempt, verdict in enumerate(fates[fate], start=1)
        )
        dead = self._with("DEAD", fates)
        letters = self._rows("SELECT queue_id, queue_offset FROM dead_letters")
        assert sorted(letters) == sorted(dead)
        if self._settings.mode == "concurrent":
            assert self._sent(f"%DLQ%{self._group}") == Counter(dead)
            assert self._sent(f"%RETRY%{self._group}") == Counter(self._with("RETRY", fates))
            committed = self._client.group_offsets(self._group)
            topics = (self._topic, f"%RETRY%{self._group}")
            ends = {(t, queue.queue_id): queue.max_offset for t in topics for queue in self._client.queues(t)}
            assert committed == ends
        for view in ("delivery_gaps", "duplicate_deliveries", "pending_retries", "pending_dead_letters"):
            assert self._rows(f"SELECT * FROM {view}") == [], view

    def _with(self, verdict: str, fates: Fates) -> list[Position]:
        return [position for position, fate in self._fates.items() if verdict in fates[fate]]

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        return select(self._read_at, text, self._spark)

    def _called(self) -> Counter[tuple[int, ...]]:
        lines = self._calls.read_text().split() if self._calls.exists() else []
        return Counter(tuple(map(int, line.split("/"))) for line in lines)

    def _sent(self, topic: str) -> Counter[Position]:
        """How often each original message was sent to a topic of one queue."""
        (queue,) = self._client.queues(topic)
        return Counter(_origins(self._client, topic, queue.max_offset))


def _origins(client: Client, topic: str, end: int) -> Iterable[Position]:
    offset = 0
    while offset < end:
        found = client.pull(topic, 0, offset, max=1000, wait_ms=15_000)
        for message in found.messages:
            _, queue, at = message.properties["LMQ_ORIGIN"].rsplit("/", 2)
            yield int(queue), int(at)
        offset = found.next_offset


def _said(commit: Commit, when: When) -> str:
    return f"{when} the commit to {commit.table.name}"
