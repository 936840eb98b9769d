"""The producer by rules, before a network that loses answers, refuses, breaks and is slow.

Contract: messages of a topic are stored in the order they were put, each once; a batch is as large as it may
be and no larger, and goes out under one key however often it is repeated, another batch under another; what
waits to be sent stays within its bound; each future ends once and says what became of its message; flush and
close return when what they wait for has ended, and a close that may not wait ends all of it itself.

Threads take turns here, and are held up where they take the producer's lock, as dice say.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakemq import Producer
from lakemq.client import Closed, InvalidRequest, OutcomeUnknown, SendResult, Unavailable
from tests.support.examples import examples
from tests.support.scripted_network import Fate, Request, ScriptedNetwork
from tests.support.turns import Turns

BATCH_BYTES = 100
MAX_PENDING_BYTES = 220
TIMEOUT_S = 30.0
RETRIES = 2
LINGER_S = 75.0
FATES: list[Fate] = ["answered", "answered", "lost", "busy", "unsent", "not the broker's", "short", "crash"]
_BEFORE_CLOSE = 8  # messages: most runs are of a producer that lives


@dataclass(eq=False)
class Put:
    """One message, and what it has to become."""

    number: int
    topic: str
    line: bytes
    since: float
    future: Future[SendResult] | None = None
    called: list[object] = field(default_factory=list)


class Producing(RuleBasedStateMachine):
    """Messages are put, each request meets its fate, time passes, somebody flushes or closes."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[Put] = []
        self.blocked: tuple[Put, Future[Future[SendResult]]] | None = None
        self.batch: list[Put] = []
        self.request: Request | None = None
        self.attempt = 0
        self.lost = False
        self.keys: set[str] = set()
        self.stored: dict[str, list[int]] = {}
        self.done: list[Put] = []
        self.wanted: list[Put] = []
        self.closing: Future[None] | None = None
        self.flushes: list[tuple[Future[None], list[Put]]] = []
        self.abandoned = False
        self.count = 0

    @initialize(
        linger=st.booleans(),
        in_batches=st.booleans(),
        sizes=st.lists(st.integers(0, 90), min_size=2, max_size=8),
        seed=st.one_of(st.none(), st.integers(0, 1_000)),
    )
    def start(self, linger: bool, in_batches: bool, sizes: list[int], seed: int | None) -> None:
        self.turns = Turns(seed)
        self.network = ScriptedNetwork(self.turns)
        self.client = self.network.client(timeout_s=TIMEOUT_S, retries=RETRIES)
        self.linger_s = LINGER_S if linger else 0.0
        self.batch_bytes = BATCH_BYTES if in_batches else 1
        self.producer = Producer(
            self.client,
            "t0",
            linger_ms=int(self.linger_s * 1000),
            batch_bytes=self.batch_bytes,
            max_pending_bytes=MAX_PENDING_BYTES,
            clock=self.turns.clock,
            threads=self.turns,
        )
        for size in sizes:
            if self.blocked is None:
                self.put("t0", size)

    # what a program does

    # What is late may be given up, and what is blocked then comes before or after the next batch.
    @precondition(lambda self: self.blocked is None and not self.abandoned and not self.late())
    @rule(
        topics=st.lists(st.sampled_from(["t0", "t0", "t0", "t1"]), min_size=1, max_size=5),
        size=st.integers(0, 90),
    )
    def put_some(self, topics: list[str], size: int) -> None:
        for topic in topics:
            if self.blocked is None:
                self.put(topic, size)

    def put(self, topic: str, size: int) -> None:
        body = f"{self.count}:" + "x" * size
        one = Put(
            self.count, topic, json.dumps({"body": body}, separators=(",", ":")).encode(), self.turns.now
        )
        self.count += 1
        putting = self.turns.submit(
            self.producer.send_later, body, **({} if topic == "t0" else {"topic": topic})
        )
        if self.closing is not None:
            assert isinstance(self.turns.error(putting), Closed)
            return
        self.blocked = one, putting
        self.settle()

    @precondition(lambda self: not self.abandoned)
    @rule()
    def flush(self) -> None:
        self.wanted = list(self.pending)
        if self.batch or self.pending:
            with pytest.raises(TimeoutError):
                self.producer.flush(0)
        else:
            self.producer.flush()
        self.settle()

    @precondition(lambda self: not self.abandoned)
    @rule()
    def flush_without_a_limit(self) -> None:
        self.wanted = list(self.pending)
        self.flushes.append((self.turns.submit(self.producer.flush), [*self.batch, *self.pending]))
        self.settle()

    @precondition(lambda self: self.closing is None and self.count > _BEFORE_CLOSE)
    @rule()
    def close(self) -> None:
        self.closing = self.turns.submit(self.producer.close)
        self.settle()

    @precondition(lambda self: not self.abandoned and self.count > _BEFORE_CLOSE)
    @rule()
    def close_at_once(self) -> None:
        in_flight, unsent = self.batch, self.pending
        blocked, self.blocked = self.blocked, None
        self.producer.close(0)
        for one in in_flight:
            self.end(one, OutcomeUnknown)
        for one in unsent:
            # The sender, told of the end, may take some of it before it is told that there is no time.
            self.end(one, Closed, *([] if in_flight else [OutcomeUnknown]))
        if blocked is not None:
            assert isinstance(self.turns.error(blocked[1]), Closed)
        self.abandoned, self.closing = True, self.closing or _done()
        self.batch, self.pending = [], []
        self.network.decide_all("answered", self.request)
        self.request = None
        self.turns.settle()

    @precondition(lambda self: self.blocked is None)
    @rule(seconds=st.sampled_from([1.0, TIMEOUT_S - 1, TIMEOUT_S]))
    def time_passes(self, seconds: float) -> None:
        self.turns.pass_time(seconds)
        self.settle()

    # what the network does

    @precondition(lambda self: self.request is not None)
    @rule(fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=6))
    def meet_some(self, fates: list[Fate]) -> None:
        for fate in fates:
            if self.request is not None:
                self.meet(fate)

    def meet(self, fate: Fate) -> None:
        if fate in ("answered", "lost", "not the broker's", "short"):
            self.broker_stores()
        self.decide(fate)
        if fate == "answered":
            self.end_batch(None)
        elif fate == "short":
            self.end_batch(OutcomeUnknown)
        elif fate == "crash":
            self.end_batch(RuntimeError)
        else:
            self.lost = self.lost or fate in ("lost", "not the broker's")
            self.attempt += 1
            if self.attempt > RETRIES:
                self.end_batch(OutcomeUnknown if self.lost else Unavailable)
            else:
                self.expect_same_request()
        self.settle()

    @precondition(lambda self: self.request is not None and len(self.batch) > 1)
    @rule(data=st.data())
    def name_a_bad_one(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.batch)))
        self.decide(index)
        if self.lost:
            self.end_batch(OutcomeUnknown)  # of the first, whose answer was lost, nothing is known
        elif index == len(self.batch):
            self.end_batch(InvalidRequest)
        else:
            self.end(self.batch.pop(index), InvalidRequest)
            if self.batch:
                self.expect_request()
        self.settle()

    def decide(self, fate: Fate | int) -> None:
        assert self.request is not None
        request, self.request = self.request, None
        request.fate.put(fate)

    def broker_stores(self) -> None:
        log = self.stored.setdefault(self.batch[0].topic, [])
        for one in self.batch:
            if one.number not in log:
                log.append(one.number)

    # what follows

    def settle(self) -> None:
        """Lets happen what can, and holds it against what has to have happened by now."""
        self.turns.settle()
        while True:
            if not self.batch and self.is_due():
                self.take_batch()
                self.expect_request()
            if not self.blocked_enters():
                break
        assert self.network.is_idle(), "sent before it is due"
        open_ones = [*self.batch, *self.pending]
        if not self.abandoned:
            for flushing, wanted in self.flushes:
                assert flushing.done() == all(one not in open_ones for one in wanted)
        if self.closing is not None and not self.abandoned:
            assert self.closing.done() == (not open_ones)

    def blocked_enters(self) -> bool:
        if self.blocked is None:
            return False
        one, putting = self.blocked
        if self.closing is not None:
            assert isinstance(self.turns.error(putting), Closed)
            self.blocked = None
            return False
        waiting = sum(len(each.line) + 1 for each in self.pending)
        if self.pending and waiting + len(one.line) + 1 > MAX_PENDING_BYTES:
            assert not putting.done(), "more is waiting than may"
            return False
        one.future = self.turns.result(putting)
        one.future.add_done_callback(one.called.append)
        assert not one.future.cancel(), "a message on its way cannot be called back"
        self.pending.append(one)
        self.blocked = None
        return True

    def is_due(self) -> bool:
        if not self.pending:
            return False
        waiting = sum(len(one.line) + 1 for one in self.pending)
        wanted = any(one in self.wanted for one in self.pending)
        lingered = self.turns.now - self.pending[0].since >= self.linger_s
        return lingered or self.closing is not None or wanted or waiting >= self.batch_bytes

    def take_batch(self) -> None:
        self.batch = [self.pending.pop(0)]
        size = len(self.batch[0].line) + 1
        while self.pending and self.pending[0].topic == self.batch[0].topic:
            size += len(self.pending[0].line) + 1
            if size > self.batch_bytes:
                break
            self.batch.append(self.pending.pop(0))

    def expect_request(self) -> None:
        self.attempt, self.lost = 0, False
        self.request = self.network.arrived()
        assert self.request.topic == self.batch[0].topic
        assert self.request.lines == [one.line for one in self.batch]
        assert self.request.key is not None
        assert self.request.key not in self.keys, "another batch under the same key"
        self.keys.add(self.request.key)
        self.key = self.request.key

    def expect_same_request(self) -> None:
        self.request = self.network.arrived()
        assert self.request.lines == [one.line for one in self.batch]
        assert self.request.key == self.key, "a repeat under another key"

    def end_batch(self, error: type[Exception] | None) -> None:
        for one in self.batch:
            self.end(one, self.stored[one.topic].index(one.number) if error is None else error)
        self.batch = []
        if error in (Unavailable, OutcomeUnknown):
            while self.pending and (self.closing or self.late()):
                self.end(self.pending.pop(0), Unavailable)

    def late(self) -> bool:
        return bool(self.pending) and self.pending[0].since <= self.turns.now - TIMEOUT_S

    def end(self, one: Put, ended: int | type[Exception], *or_else: type[Exception]) -> None:
        self.done.append(one)
        assert one.future is not None
        error = self.turns.error(one.future)
        if isinstance(ended, int):
            assert error is None
            assert one.future.result().queue_offset == ended
        else:
            assert type(error) in (ended, *or_else)
        if isinstance(error, OutcomeUnknown) and not or_else:
            assert error.idempotency_key == self.key
        if isinstance(error, Unavailable) and "not sent" in error.detail:
            assert error.context["sent"] is False

    @invariant()
    def nothing_is_sent_before_it_is_due(self) -> None:
        assert self.network.is_idle()

    @invariant()
    def nothing_ends_before_its_request(self) -> None:
        for one in [*self.batch, *self.pending]:
            assert one.future is not None
            assert not one.future.done()

    def teardown(self) -> None:
        if not hasattr(self, "producer"):
            return
        try:
            if not self.turns.is_over:
                self.end_all()
        finally:
            self.turns.end()
            self.client.close()

    def end_all(self) -> None:
        if not self.abandoned:
            self.close_at_once()
        assert all(len(one.called) == 1 for one in self.done)
        assert all(flushing.done() for flushing, _ in self.flushes)
        for topic, lines in self.network.stored.items():
            numbers = [int(json.loads(line)["body"].partition(":")[0]) for line in lines]
            assert numbers == sorted(set(numbers)), f"{topic}: out of order, or twice"
            unsent = [
                one.number for one in self.done if one.future and isinstance(one.future.exception(0), Closed)
            ]
            assert not set(numbers) & set(unsent), (
                f"{topic}: stored though its sender was told that it is not"
            )
        assert not self.network.closed, "a client that others use was closed"


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def test_whatever_the_network_does_each_message_ends_once_in_order_under_its_key() -> None:
    run_state_machine_as_test(
        Producing,
        settings=settings(max_examples=examples(120), stateful_step_count=30),
    )
