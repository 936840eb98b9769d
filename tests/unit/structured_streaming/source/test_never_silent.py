"""A query over a broker to which everything happens: each message is read once, or its loss is said.

The broker is a model, the source is the real one, from planning to the read loop; Spark's part is what its
micro-batch loop does: an offset log, a commit log, a crash between two steps. A slave that lacks the newest
messages may be promoted at any moment and give their offsets again. Left out is what no checkpoint can show:
an older store that has the query's epoch, by itself or by a failover before the query noted it, whose queues
end where the query has not been, or were refilled before it looked.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyspark.sql.types import LongType, StructField, StructType

from store_native.errors import LakeMQError
from structured_streaming.offsets import MessageQueue, Offsets
from structured_streaming.options import parse_read
from structured_streaming.source.query_run import QueryRun
from structured_streaming.source.slice_reader import SliceReader
from tests.support.examples import examples
from tests.unit.structured_streaming.model_broker import Message, ModelBroker, ModelQueue

LOG = logging.getLogger("lakemq.spark")
NAMES = ("t0", "t1")
SCHEMA = StructType([StructField("queue_offset", LongType())])
SUBSCRIPTIONS: list[dict[str, str]] = [
    {"subscribePattern": "t."},
    {"assign": '{"t0":[0]}'},
    {"subscribe": "t1"},
]
QUEUE = r"topic (\S+), broker broker-a, queue (\d+)"
names = st.sampled_from(NAMES)
queue_ids = st.integers(0, 2)
crashes = st.sampled_from([None, None, "planned", "logged", "read"])


class Said(logging.Handler):
    """What the source logged as lost, and the number of the newest queue at that moment."""

    def __init__(self, broker: ModelBroker) -> None:
        super().__init__()
        self.broker = broker
        self.words: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.args, tuple)
        self.words.append((self.broker.number(), str(record.args[0])))


class QueryOverABroker(RuleBasedStateMachine):
    """The broker, the query and what is owed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = ModelBroker()
        self.given = SUBSCRIPTIONS[0]
        self.run: QueryRun | None = None
        self.offset_log: list[str] = []
        self.committed = 0
        self.owed: set[Message] = set()
        self.delivered: dict[int, list[int]] = {}
        self.known: set[int] = set()
        self.excused: set[Message] = set()
        self.to_be_said: dict[tuple[str, int], int] = {}
        self.fell = False
        self.said = Said(self.broker)
        self.heard = 0
        self.fails: dict[str, str] = {"failOnDataLoss": "false"}
        LOG.addHandler(self.said)
        LOG.propagate = False

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            LOG.removeHandler(self.said)
            LOG.propagate = True

    # What happens to the broker.

    @initialize(first=st.integers(0, 4), queues=st.integers(1, 2))
    def begin(self, first: int, queues: int) -> None:
        self.broker.create("t0", queues)
        self.append("t0", 0, first)
        self.trigger(None, None)

    @rule(topic=names, queue_id=queue_ids, count=st.integers(1, 6))
    def append(self, topic: str, queue_id: int, count: int) -> None:
        queue = self.queue(topic, queue_id)
        if queue is None or queue.hidden or queue.short:
            return
        queue.high += count
        self.owed.update(self.broker.message(topic, queue_id, queue.high - i) for i in range(1, count + 1))

    @rule(topic=names, queue_id=queue_ids, count=st.integers(1, 6), forgets=st.booleans())
    def expire(self, topic: str, queue_id: int, count: int, forgets: bool) -> None:
        queue = self.queue(topic, queue_id)
        if queue is None:
            return
        taken = self.broker.messages(topic, queue_id)[:count]
        queue.low += len(taken)
        if forgets:
            queue.forget()
        self.lose(taken)

    @rule(topic=names)
    def delete(self, topic: str) -> None:
        found = self.broker.held.get(topic)
        if found is not None:
            for queue_id in found.queues:
                self.lose(self.broker.messages(topic, queue_id))
            del self.broker.held[topic]

    @rule(topic=names, queues=st.integers(1, 3))
    def create(self, topic: str, queues: int) -> None:
        if topic not in self.broker.held:
            self.broker.create(topic, queues)

    @rule(topic=names, queue_id=queue_ids)
    def add_or_hide_a_queue(self, topic: str, queue_id: int) -> None:
        found = self.broker.held.get(topic)
        if found is None:
            return
        queue = found.queues.setdefault(queue_id, ModelQueue(self.broker.number(), hidden=True))
        queue.hidden = not queue.hidden

    @rule()
    @precondition(lambda self: self.is_noted())
    def fail_over(self) -> None:
        self.broker.fail_over()

    @rule(lacks=st.lists(st.integers(0, 5), min_size=6, max_size=6))
    @precondition(lambda self: self.is_noted())
    def promote_by_force(self, lacks: list[int]) -> None:
        """A slave without some newest messages is the master: it gives their offsets to others."""
        ends: dict[tuple[str, int], int] = {}
        found = [(t, i) for t, topic in self.broker.held.items() for i in topic.queues]
        for (topic, queue_id), most in zip(found, lacks, strict=False):
            queue = self.queue(topic, queue_id)
            assert queue is not None
            end = ends[topic, queue_id] = max(queue.low, queue.high - most)
            if end < queue.high:
                self.cut(topic, queue_id, end)
        self.broker.promote_by_force(ends)

    def cut(self, topic: str, queue_id: int, end: int) -> None:
        """What comes behind ``end`` now has the offsets of what is gone, which nobody owes any more."""
        queue = self.broker.held[topic].queues[queue_id]
        before, known = self.delivered.get(queue.life, []), queue.life in self.known
        gone = {message for message in self.broker.messages(topic, queue_id) if message.offset >= end}
        if self.offset_log and known:
            logged = self.logged(-1)
            same = logged.topic_ids.get(topic) == self.broker.held[topic].topic_id
            if same and logged.position(self.name(topic, queue_id)) > end:
                self.to_be_said[topic, queue_id] = queue.life
        queue.high = end
        self.owe_anew(topic, queue_id)
        self.excused |= gone
        self.delivered[queue.life] = [offset for offset in before if offset < end]
        if known:
            self.known.add(queue.life)

    @rule(topic=names, queue_id=queue_ids, data=st.data())
    @precondition(lambda self: self.is_noted())
    def put_a_queue_back(self, topic: str, queue_id: int, data: st.DataObject) -> None:
        """The log is cut, in the same epoch: the queue ends before the query's position."""
        queue = self.queue(topic, queue_id)
        if queue is None or queue.hidden or not self.offset_log:
            return
        logged = self.logged(-1)
        if logged.topic_ids.get(topic) != self.broker.held[topic].topic_id:
            return
        position = min(logged.position(self.name(topic, queue_id)), queue.high)
        if queue.low < position:
            end = data.draw(st.integers(queue.low, position - 1))
            self.lose([m for m in self.broker.messages(topic, queue_id) if m.offset >= end])
            before = self.delivered.get(queue.life, [])
            known = queue.life in self.known
            queue.high, queue.short = end, True
            self.owe_anew(topic, queue_id)  # what comes now has the offsets of what was cut off
            self.delivered[queue.life] = [offset for offset in before if offset < end]
            if known:
                self.known.add(queue.life)

    @rule(cut=st.lists(st.integers(0, 8), min_size=6, max_size=6))
    def put_the_store_back(self, cut: list[int]) -> None:
        """An older store of an older epoch: what it holds is owed anew."""
        before = set(self.owed)
        self.broker.put_back(min(self.broker.epoch_now, self.logged(-1).epoch) - 1)
        self.fell = True
        for (topic, found), most in zip(self.broker.held.items(), cut, strict=False):
            for queue_id, queue in found.queues.items():
                self.excused.update(self.broker.messages(topic, queue_id))
                queue.high = max(queue.low, min(queue.high, queue.low + most))
                self.owe_anew(topic, queue_id)
        self.excused |= before

    # What happens to the query.

    @rule(limit=st.none() | st.integers(1, 7))
    @precondition(lambda self: self.offset_log)
    def trigger_that_fails_on_data_loss(self, limit: int | None) -> None:
        """It ends at a loss with nothing committed; of one it passes over in silence `settle` knows."""
        committed, ended = self.committed, None
        self.run, self.fails = None, {"failOnDataLoss": "true"}
        try:
            self.trigger(limit, None)
        except LakeMQError as error:
            ended = error
        finally:
            self.run, self.fails = None, {"failOnDataLoss": "false"}
        if ended is not None:
            assert ended.code == "OFFSET_ILLEGAL"
            assert "messages are lost to this query" in ended.detail
            assert self.committed == committed

    @rule(limit=st.none() | st.integers(1, 7), crash=crashes)
    def trigger(self, limit: int | None, crash: str | None) -> None:
        self.run_batch(limit, crash)

    def run_batch(self, limit: int | None, crash: str | None = None) -> list[tuple[str, int, int]]:
        """Returns the places of the messages that it committed."""
        run = self.started()
        if self.committed == len(self.offset_log):
            start = self.logged(-1) if self.offset_log else run.initial()
            end = run.latest(start, limit)
            self.looked()
            if crash == "planned":
                self.run = None
                return []
            self.goes_on(run)
            if self.offset_log and end == start:
                return []
            self.offset_log.append(json.dumps(end.to_json()))
            self.known.update(
                queue.life
                for topic, found in self.broker.held.items()
                for queue_id, queue in found.queues.items()
                if not queue.hidden and run.options.subscription.covers(self.name(topic, queue_id))
            )
            if crash == "logged":
                self.run = None
                return []
        start = self.logged(-2) if len(self.offset_log) > 1 else run.initial()
        chosen = run.options
        fails = (chosen.fail_on_data_loss, chosen.fail_on_reused_offsets)
        reader = SliceReader(None, None, SCHEMA, "*", fails[0], fail_on_reused_offsets=fails[1])
        places: list[tuple[str, int, int]] = []
        pieces = run.slices(start, self.logged(-1))
        self.listen()
        for piece in pieces:
            for batch in reader.read_from(self.broker, piece):
                offsets = batch.column("queue_offset").to_pylist()
                places += [(piece.queue.topic, piece.queue.queue_id, at) for at in offsets]
        rows = [self.broker.message(*place) for place in places]
        if crash == "read":
            self.run = None
            return []
        self.committed += 1
        for message in rows:
            before = self.delivered.setdefault(message.life, [])
            assert not before or before[-1] < message.offset, f"{message} came after offset {before[-1]}"
            before.append(message.offset)
        return places

    @rule(given=st.sampled_from(SUBSCRIPTIONS))
    def restart(self, given: dict[str, str]) -> None:
        self.run, self.given = None, given

    def settle(self) -> None:
        """Reads until there is nothing to read, and asks whether all is accounted for."""
        self.restart(SUBSCRIPTIONS[0])
        self.trigger(None, None)
        for found in self.broker.held.values():
            for queue in found.queues.values():
                queue.hidden = False
        for _ in range(4):
            self.trigger(None, None)
        self.account()

    def account(self) -> None:
        missing = {m for m in self.owed if m.offset not in self.delivered.get(m.life, ())}
        silent = {m for m in missing - self.excused if not self.is_said(m)}
        assert not silent, f"passed over in silence: {sorted(silent)}; said: {self.said.words}"

    # Bookkeeping.

    def is_noted(self) -> bool:
        """Whether the checkpoint has what became of the store."""
        return not self.fell and (not self.offset_log or self.logged(-1).epoch <= self.broker.epoch_now)

    def started(self) -> QueryRun:
        if self.run is None:
            given = {"path": "/a", "startingOffsets": "earliest"} | self.fails | self.given
            self.run = QueryRun(parse_read(given, streaming=True), self.broker)
        return self.run

    def logged(self, index: int) -> Offsets:
        return Offsets.from_json(json.loads(self.offset_log[index]))

    def name(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.broker.broker_name, queue_id)

    def queue(self, topic: str, queue_id: int) -> ModelQueue | None:
        found = self.broker.held.get(topic)
        return None if found is None else found.queues.get(queue_id)

    def lose(self, messages: list[Message]) -> None:
        """What was never in a plan of the query when it went cannot be missed by it."""
        for message in messages:
            if message.life not in self.known:
                self.excused.add(message)

    def owe_anew(self, topic: str, queue_id: int) -> None:
        """The query begins a queue again, as it has said."""
        queue = self.broker.held[topic].queues[queue_id]
        self.excused.update(self.broker.messages(topic, queue_id))
        queue.life = self.broker.number()
        self.owed.update(self.broker.messages(topic, queue_id))

    def looked(self) -> None:
        """The query has seen the broker as it is, and has said what it lost."""
        if self.fell:
            assert any("the store is at epoch" in words for _, words in self.said.words)
            self.fell = False
            self.to_be_said.clear()
        for (topic, queue_id), life in self.to_be_said.items():
            queue = self.queue(topic, queue_id)
            if queue is not None and not queue.hidden and queue.life in self.known:
                said = f"{self.name(topic, queue_id)}: truncated log"
                assert any(life < at and words.startswith(said) for at, words in self.said.words), said
        self.to_be_said.clear()
        self.listen()

    def goes_on(self, run: QueryRun) -> None:
        """What the query said of the broker is final, since it goes on from there."""
        for topic, found in self.broker.held.items():
            for queue_id, queue in found.queues.items():
                if not run.options.subscription.covers(self.name(topic, queue_id)):
                    continue
                queue.short = False
                gone = f"{self.name(topic, queue_id)}: the queue no longer exists"
                if queue.hidden and any(
                    queue.life < at and words.startswith(gone) for at, words in self.said.words
                ):
                    self.owe_anew(topic, queue_id)

    def listen(self) -> None:
        """What is said to have expired is what was not read, and no more than that."""
        for _, words in self.said.words[self.heard :]:
            if named := re.match(rf"{QUEUE}: offsets \[(\d+), (\d+)\) expired .*, (\d+) messages", words):
                start, end, count = int(named[3]), int(named[4]), int(named[5])
                queue = self.queue(named[1], int(named[2]))
                assert queue is not None
                assert (queue.low, end - start) == (end, count)
                assert not set(range(start, end)) & set(self.delivered.get(queue.life, ())), words
        self.heard = len(self.said.words)

    def is_said(self, message: Message) -> bool:
        return any(message.life < at and _covers(words, message) for at, words in self.said.words)


def _covers(words: str, message: Message) -> bool:
    """Whether a loss that was said is this message's."""
    named: Any
    if named := re.match(rf"{QUEUE}: offsets \[(\d+), (\d+)\) expired", words):
        topic, queue_id, start, end = named.groups()
        where = (topic, int(queue_id)) == (message.topic, message.queue_id)
        return where and int(start) <= message.offset < int(end)
    if named := re.match(rf"{QUEUE}: the query is at \d+ but the queue now ends at (\d+)", words):
        where = (named[1], int(named[2])) == (message.topic, message.queue_id)
        return where and int(named[3]) <= message.offset
    if named := re.match(rf"{QUEUE}: truncated log: the query had come to .* goes on at offset (\d+)", words):
        where = (named[1], int(named[2])) == (message.topic, message.queue_id)
        return where and message.offset < int(named[3])
    if named := re.match(rf"{QUEUE}: truncated log: offsets \[(\d+), \d+\) were other messages", words):
        where = (named[1], int(named[2])) == (message.topic, message.queue_id)
        return where and int(named[3]) <= message.offset
    if named := re.match(rf"{QUEUE}: the queue no longer exists", words):
        return (named[1], int(named[2])) == (message.topic, message.queue_id)
    if named := re.match(r"topic (\S+) no longer exists", words):
        return bool(named[1] == message.topic)
    if named := re.match(r"topic (\S+) was deleted and created again \(id (\S+) became", words):
        return (named[1], named[2]) == (message.topic, message.topic_id)
    return False


class QueryThatKeepsPositions(QueryOverABroker):
    """One whose sink has a row for each position (failOnReusedOffsets): it gives none twice, or ends."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = {"failOnDataLoss": "false", "failOnReusedOffsets": "true"}
        self.last: dict[tuple[str, int], int] = {}
        self.has_ended = False

    def trigger_that_fails_on_data_loss(self) -> None:
        """No rule here."""

    def run_batch(self, limit: int | None, crash: str | None = None) -> list[tuple[str, int, int]]:
        if self.has_ended:
            return []
        committed, ended, places = self.committed, None, []
        try:
            places = super().run_batch(limit, crash)
        except LakeMQError as error:
            ended = error
        if ended is not None:
            assert ended.code == "OFFSET_ILLEGAL"
            assert "these offsets as other messages'" in ended.detail
            assert self.committed == committed
            self.has_ended = True
        for topic, queue_id, offset in places:
            assert offset > self.last.get((topic, queue_id), -1), (topic, queue_id, offset)
            self.last[topic, queue_id] = offset
        return places

    def account(self) -> None:
        if not self.has_ended:
            super().account()


_SETTINGS = settings(
    max_examples=examples(100),
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
TestQueryOverABroker = QueryOverABroker.TestCase
TestQueryOverABroker.settings = _SETTINGS
TestQueryThatKeepsPositions = QueryThatKeepsPositions.TestCase
TestQueryThatKeepsPositions.settings = _SETTINGS
