"""The group job over a model of Spark, the ledger and the broker: any handler, any end of a driver.

The job, its fence, its tasks and what they know of the ledger are the real ones; frames, commits, queues and
the streams behind the ledger's rows are plain Python (tests/support/model_*.py). The contract, at each step:

- one row per position and attempt, attempts without holes, none behind a last verdict;
- what the ledger has is not handled again, and an attempt is called once in each run of its batch;
- the row says what the handler said: RETRY is DEAD exactly when the attempts that count are used up, and no
  message is DEAD whose own call succeeded; one that an operator gave up is DEAD and was not called;
- the broker is never told of more than the ledger has; a driver whose group is another's writes nothing.

And at the end, when all that waits has come: each message has its last verdict, each dead letter its row and
its message, and what verdicts send was sent once.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import ACK, DEAD, DELIVERIES, RETRY
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from jobs.group.landed_rows import landed_among
from jobs.group.outcome_rows import IN_COMPANY
from jobs.handler.loader import LoadedHandler
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.handler import DeliveredMessage, Outgoing, Verdict
from store_native.errors import LakeMQError
from tests.support.examples import examples
from tests.support.model_broker import ModelBroker
from tests.support.model_ledger import ModelLedger
from tests.unit.jobs.group.model_driver import (
    DEAD_TOPIC,
    FAULTS,
    GROUP,
    NO_FAULT,
    READ,
    RETRIES,
    SENT,
    Attempt,
    ConflictError,
    Driver,
    FailedError,
    Fault,
    KilledError,
    Position,
    Row,
    RowStream,
    Run,
    Surroundings,
    attempt_of,
)

LEVELS = [1_000, 10_000, 30_000, 60_000]
LAST = (ACK, DEAD)
MOODS = ["ok", "send", "raise", "raise", "once", "retry", "later", "dead", "in company"]
"""What a handler does at an attempt; `once` fails the first call only, `in company` each call of several."""
OF_ITS_OWN = ("raise", "retry", "later")
"""What is said of one message in a call for it alone."""
MOST_ROUNDS = 100
MEMORY = Path("/dev/shm")
"""Checkpoints are synced, which nothing here is about."""
_ORIGIN = ("RETRY_TOPIC", "LMQ_ORIGIN")


class GroupModel(RuleBasedStateMachine):
    """A group, from its first message to its last verdict."""

    def __init__(self) -> None:
        super().__init__()
        memory = MEMORY if MEMORY.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="lakemq-model-", dir=memory))
        self.checkpoints = 0
        self.copy: Path | None = None
        self.broker = ModelBroker({"t": 2, RETRIES: 1, DEAD_TOPIC: 1, SENT: 1})
        self.ledger = ModelLedger([DELIVERIES, CONSUMER_OFFSETS, DEAD_LETTERS, SKIPPED_MESSAGES])
        self.driver: Driver | None = None
        self.runs: list[Run] = []
        self.wrong: list[str] = []
        self.calls: Counter[Attempt] = Counter()
        self.skips: dict[Position, int] = {}
        self.is_down = False
        self.checked = self.known_commits = 0
        self.known: set[Attempt] = set()
        self.retry, self.dead, self.outbox = (RowStream(self.ledger) for _ in range(3))

    @initialize(vectorised=st.booleans(), most=st.integers(0, 3), cores=st.integers(1, 3))
    def a_group_is_made(self, vectorised: bool, most: int, cores: int) -> None:
        loaded = LoadedHandler(self.handle_batch if vectorised else self.handle, vectorised)

        class Target:
            target = "model:handle"

            def load(self) -> LoadedHandler:
                return loaded

        self.vectorised = vectorised
        self.most = most
        policy = RetryPolicy.of("10s", LEVELS, most)
        self.around = Surroundings(
            *(self.broker, self.ledger, policy, Target(), cores, self.runs, self.check_committed)
        )

    # What the group's users, its operators and the broker do.

    @rule(queue=st.integers(0, 1), moods=st.lists(st.sampled_from(MOODS), min_size=1, max_size=4))
    def a_message_is_sent(self, queue: int, moods: list[str]) -> None:
        """The last mood is that of all later attempts."""
        self.broker.send("t", queue, {"message_id": "id", "body": json.dumps(moods).encode()})

    @rule(queue=st.integers(0, 1), many=st.integers(20, 60))
    def many_are_sent(self, queue: int, many: int) -> None:
        for _ in range(many):
            self.broker.send("t", queue, {"message_id": "id", "body": b'["ok"]'})

    @precondition(lambda self: self.broker.delayed)
    @rule(data=st.data(), all_of_them=st.booleans(), twice=st.booleans())
    def delayed_messages_come(self, data: st.DataObject, all_of_them: bool, twice: bool) -> None:
        """Twice where the broker crashes behind their delivery."""
        waiting = range(len(self.broker.delayed))
        some = st.lists(st.sampled_from(waiting), min_size=1, max_size=20)
        self.broker.deliver(waiting if all_of_them else data.draw(some), twice=twice)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data())
    def an_operator_gives_a_message_up(self, data: st.DataObject) -> None:
        position, attempts = data.draw(st.sampled_from(self.unfinished()))
        self.skips[position] = attempts
        names = ("topic", "broker_name", "queue_id", "queue_offset")
        row = dict(zip(names, position, strict=True)) | {"consumer_group": GROUP, "attempts": attempts}
        self.ledger.put(SKIPPED_MESSAGES, [row | {"operator": "me", "reason": "x", "skipped_at": "now"}])

    # What the group's drivers do, and what becomes of them.

    @rule(
        most=st.sampled_from([1, 3, 100]),
        fault=st.just(NO_FAULT) | st.sampled_from(FAULTS),
        repeats=st.sampled_from([0, 0, 0, 1]),
        is_down=st.sampled_from([False, False, False, True]),
        sends_back=st.sampled_from([True, True, False]),
    )
    def a_batch_runs(self, most: int, fault: Fault, repeats: int, is_down: bool, sends_back: bool) -> None:
        """`is_down`: what the handler needs is away, each of its calls fails."""
        self.is_down = is_down
        try:
            self.batch(self.running(), most, fault, repeats)
        except (KilledError, FailedError, ConflictError):
            self.driver = None
        self.is_down = False
        if sends_back:
            self.failed_attempts_are_sent_back()

    @rule(batches=st.integers(1, 3), sends=st.sampled_from([0, 40]))
    def what_the_handler_needs_is_away(self, batches: int, sends: int) -> None:
        """While it lasts, messages fail together with others, and each time come again."""
        self.many_are_sent(0, sends)
        for _ in range(batches):
            self.a_batch_runs(100, NO_FAULT, 0, is_down=True, sends_back=True)
            self.broker.deliver(range(len(self.broker.delayed)))

    @rule(
        most=st.sampled_from([1, 3, 100]),
        where=st.sampled_from(["checked", "before", "after"]),
        sees=st.booleans(),
        forgets=st.booleans(),
        own_checkpoint=st.booleans(),
        batches=st.integers(0, 2),
    )
    def another_driver_takes_the_group(
        self, most: int, where: str, sees: bool, forgets: bool, own_checkpoint: bool, batches: int
    ) -> None:
        """In the middle of a batch of the first, which may not see it; the broker may forget its epochs."""
        first = self.running()
        others: list[Driver] = []
        rows: list[Row] = []
        offsets: list[Row] = []

        def take() -> None:
            around, self.ledger.around = self.ledger.around, lambda moment, table: None
            first.lease.sees = sees
            if forgets and first.lease.epoch > 1:
                self.broker.epoch = 0
            if own_checkpoint:
                self.checkpoints += 1
            others.append(Driver(self.around, self.checkpoint))
            for _ in range(batches):
                self.batch(others[0], most)
            rows.extend(self.ledger.rows(DELIVERIES))
            offsets.extend(self.ledger.rows(CONSUMER_OFFSETS))
            self.ledger.around = around

        def beside(moment: str, table: str) -> None:
            if (moment, table) == (where, DELIVERIES.name) and not others:
                take()

        first.checked = take if where == "checked" else lambda: None
        refused = None
        try:
            self.batch(first, most, beside=beside)
        except LakeMQError as error:
            refused = error.code
        assert refused == ("LEASE_CONFLICT" if others else None), "who lost the group, and only he, is told"
        first.checked = lambda: None
        if others:
            assert self.ledger.rows(DELIVERIES) == rows, "a driver wrote whose group is another's"
            if sees:
                assert self.ledger.rows(CONSUMER_OFFSETS) == offsets, "and nothing of how far it would be"
            self.driver = others[0]

    @rule(stream=st.sampled_from(["group", "retry", "dead", "outbox"]))
    def a_checkpoint_is_lost(self, stream: str) -> None:
        self.driver = None
        if stream == "group":
            self.checkpoints += 1
        else:
            getattr(self, stream).begin_anew()

    @precondition(lambda self: self.checkpoint.exists())
    @rule(goes_on=st.booleans())
    def the_checkpoint_is_copied(self, goes_on: bool) -> None:
        """`goes_on`: and is used for one batch more."""
        self.copy = self.directory / "copy"
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.checkpoint, self.copy)
        if goes_on:
            self.batch(self.running(), 1)

    @precondition(lambda self: self.copy is not None)
    @rule()
    def an_earlier_checkpoint_is_put_back(self) -> None:
        assert self.copy is not None
        self.driver = None
        self.checkpoints += 1
        shutil.copytree(self.copy, self.checkpoint)

    # The streams behind the ledger's rows.

    @rule(stop=st.none() | st.integers(0, 3))
    def failed_attempts_are_sent_back(self, stop: int | None = None) -> None:
        """As `jobs.retry`; killed behind so many."""
        rows = [row for row in self.retry.rows() if row["verdict"] == RETRY]
        for number, row in enumerate(rows[:stop]):
            key = f"retry {self.retry.name} {number}"
            self.broker.send_once(key, RETRIES, message_again(row), delayed=True)
        if stop is None:
            self.retry.end_batch()

    @rule(stop=st.sampled_from(["never", "never", "sent", "landed"]))
    def dead_letters_land(self, stop: str = "never") -> None:
        """As `jobs.dead_letter`; killed behind the messages or behind their rows."""
        given_up = {attempt_of(row): row for row in self.dead.rows() if row["verdict"] == DEAD}
        if given_up:
            driver = self.running()
            driver.dead_fence.take()
            session: Any = driver.session
            landed = landed_among(given_up.keys(), session, self.ledger, DEAD_LETTERS, GROUP)
            new = [row for attempt, row in given_up.items() if attempt not in landed]
            for number, row in enumerate(new):
                message = {"message_id": "id", "body": row["body"], "keys": [repr(attempt_of(row))]}
                self.broker.send_once(f"dlq {self.dead.name} {number}", DEAD_TOPIC, message)
            if stop == "sent":
                self.driver = None
                return
            rows = pa.Table.from_pylist(
                [row | {"attempts": row["attempt"]} for row in new], DEAD_LETTERS.arrow_schema
            )
            driver.dead_fence.append(session.newSession().createDataFrame(rows), self.dead.batch)
        if stop == "never":
            self.dead.end_batch()
        else:
            self.driver = None

    @rule(stop=st.none() | st.integers(0, 3))
    def what_verdicts_send_is_sent(self, stop: int | None = None) -> None:
        """As `jobs.outbox`, whose keys are those of the rows; killed behind so many."""
        rows = [row for row in self.outbox.rows() if row["sends"]]
        for row in rows[:stop]:
            for number, sent in enumerate(row["outbox"]):
                key = f"outbox {row['query_id']} {row['batch_id']} {attempt_of(row)} {number}"
                message = {"message_id": sent["message_id"], "body": sent["body"]}
                self.broker.send_once(key, SENT, message)
        if stop is None:
            self.outbox.end_batch()

    # The contract.

    @invariant()
    def each_attempt_has_one_row(self) -> None:
        assert not self.wrong, self.wrong
        found = Counter(attempt_of(row) for row in self.ledger.rows(DELIVERIES))
        assert set(found.values()) <= {1}, "an attempt has two rows"
        for position, rows in self.by_message().items():
            assert [row["attempt"] for row in rows] == list(range(1, len(rows) + 1)), position
            assert all(row["verdict"] == RETRY for row in rows[:-1]), "an attempt behind the last verdict"
        letters = Counter(self.landed())
        assert set(letters.values()) <= {1}, "a dead letter has two rows"

    @invariant()
    def nothing_is_reported_before_it_is_in_the_ledger(self) -> None:
        known = {attempt_of(row) for row in self.ledger.rows(DELIVERIES)}
        said = dict(self.broker.offsets)
        for row in self.ledger.rows(CONSUMER_OFFSETS):
            at = row["topic"], row["queue_id"]
            said[at] = max(row["next_offset"], said.get(at, 0))
        for queue, held in self.broker.queues.items():
            for message in held[: said.get((queue.topic, queue.queue_id), 0)]:
                assert attempt_at(message) in known, f"{message} was reported and has no row"

    def check_committed(self, run: Run) -> None:
        """Holds the rows of a commit against what the handler said."""
        rows = self.ledger.rows(DELIVERIES)
        before = {position: len(of) for position, of in self.by_message(rows[: self.checked]).items()}
        uncounted = Counter(
            attempt_of(row)[:4] for row in rows[: self.checked] if row["reason"] == IN_COMPANY
        )
        for row in rows[self.checked :]:
            attempt = attempt_of(row)
            position, number = attempt[:4], attempt[4]
            assert number == before.get(position, 0) + 1, f"{attempt}: it is not the next one"
            said = run.said.get(attempt, [])
            if position in run.skipped:
                assert not said, f"{attempt} was given up, and called"
                assert (row["verdict"], row["reason"]) == (DEAD, "skipped by me: x")
                continue
            assert said, f"{attempt} has a row and no call"
            if not self.vectorised:
                assert len(said) <= 1 + run.repeats, f"{attempt} was called {len(said)} times"
            self.check_row(row, said[-1], number - uncounted[position])
        self.checked = len(rows)

    def check_row(self, row: Row, said: str, counted: int) -> None:
        if said in ("ok", "send"):
            expected: tuple[Any, ...] = ACK, None
        elif said == "dead":
            expected = DEAD, "bad"
        elif said == "failed in company":
            expected = RETRY, IN_COMPANY
        elif counted > self.most:
            assert said in OF_ITS_OWN, "it is given up by a call that it was not alone in"
            expected = DEAD, f"attempts used up (max reconsume times {self.most})"
        else:
            expected = RETRY, None
        assert (row["verdict"], row["reason"]) == expected, (said, counted)
        assert row["sends"] == (1 if said == "send" else None)
        level = None if expected[0] != RETRY else 4 if said.startswith("later") else 2
        assert row["delay_level"] == level

    def teardown(self) -> None:
        """All that waits comes, and nothing fails any more."""
        try:
            if hasattr(self, "around") and not self.wrong:
                self.settle()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def settle(self) -> None:
        for _ in range(MOST_ROUNDS):
            self.broker.deliver(range(len(self.broker.delayed)))
            went_on = self.batch(self.running(), 100)
            self.failed_attempts_are_sent_back()
            self.dead_letters_land()
            self.what_verdicts_send_is_sent()
            streams = (self.retry, self.dead, self.outbox)
            if not (went_on or self.broker.delayed) and all(stream.has_all for stream in streams):
                break
        else:
            raise AssertionError("the group does not come to rest")
        self.each_attempt_has_one_row()
        self.nothing_is_reported_before_it_is_in_the_ledger()
        assert not self.unfinished(), "a message has no last verdict"
        if self.checkpoints == 0:  # a new one that finds nothing new reports nothing
            for queue, end in self.broker.ends(READ).items():
                assert self.broker.offsets.get((queue.topic, queue.queue_id), 0) == end, "not all is reported"
        rows = self.ledger.rows(DELIVERIES)
        given_up = {attempt_of(row) for row in rows if row["verdict"] == DEAD}
        assert set(self.landed()) == given_up
        letters = Counter(m["keys"][0] for m in self.held(DEAD_TOPIC))
        assert letters.keys() == {repr(attempt) for attempt in given_up}
        if self.dead.lives == 1:
            assert set(letters.values()) <= {1}, "a dead letter was sent twice"
        decided = [sent["message_id"] for row in rows for sent in row["outbox"] or ()]
        assert Counter(m["message_id"] for m in self.held(SENT)) == Counter(decided)
        assert len(set(decided)) == len(decided)

    # The handler.

    def handle(self, message: DeliveredMessage) -> Verdict | None:
        position = message.topic, message.broker_name, message.queue_id, message.queue_offset
        verdict = self.mood_of((*position, message.attempt), message.body)
        if verdict in ("raise", "in company"):
            said = "ok" if verdict == "in company" else "raise"
            self.say([(*position, message.attempt)], [said])
            if said == "raise":
                raise ValueError("it cannot")
            return None
        self.say([(*position, message.attempt)], [verdict])
        return VERDICTS[verdict]

    def handle_batch(self, batch: pa.RecordBatch) -> list[Verdict | None]:
        names = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")
        attempts = list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
        moods = list(map(self.mood_of, attempts, batch.column("body").to_pylist()))
        if "raise" in moods or ("in company" in moods and len(moods) > 1):
            self.say(attempts, ["failed in company" if len(moods) > 1 else "raise"] * len(moods))
            raise ValueError("one of them cannot be handled")
        moods = ["ok" if mood == "in company" else mood for mood in moods]
        beside = " beside others" if len(moods) > 1 else ""
        self.say(attempts, [mood + beside if mood in ("retry", "later") else mood for mood in moods])
        return [VERDICTS[mood] for mood in moods]

    def mood_of(self, attempt: Attempt, body: bytes) -> str:
        """What the handler does now."""
        self.calls[attempt] += 1
        if self.is_down:
            return "raise"
        moods = json.loads(body)
        mood = str(moods[min(attempt[4], len(moods)) - 1])
        if mood == "once":
            return "ok" if self.calls[attempt] > 1 else "raise"
        return mood

    def say(self, attempts: Sequence[Attempt], said: Sequence[str]) -> None:
        commits = self.ledger.commits[DELIVERIES.name]
        self.known.update(attempt_of(row) for rows in commits[self.known_commits :] for row in rows)
        self.known_commits = len(commits)
        for attempt, what in zip(attempts, said, strict=True):
            if attempt in self.known:
                self.wrong.append(f"{attempt} is in the ledger and was handled again")
            self.runs[-1].said[attempt].append(what)

    # What is there.

    @property
    def checkpoint(self) -> Path:
        return self.directory / str(self.checkpoints)

    def running(self) -> Driver:
        """The group's driver."""
        if self.driver is None:
            try:
                self.driver = Driver(self.around, self.checkpoint)
            except LakeMQError as error:
                if error.code != "ARGUMENT_ILLEGAL" or self.copy is None:
                    raise
                self.checkpoints += 1
                self.driver = Driver(self.around, self.checkpoint)
        return self.driver

    def batch(
        self, driver: Driver, most: int, fault: Fault = NO_FAULT, repeats: int = 0, **more: Any
    ) -> bool:
        """Runs a batch; a checkpoint that is older than the ledger is refused, and deleted as advised."""
        try:
            return driver.run(most, Run(frozenset(self.skips), repeats), fault, **more)
        except LakeMQError as error:
            if error.code != "ARGUMENT_ILLEGAL" or self.copy is None:
                raise
            self.checkpoints += 1
            self.driver = None
            return True

    def held(self, topic: str) -> list[Row]:
        return [
            message for queue, held in self.broker.queues.items() if queue.topic == topic for message in held
        ]

    def landed(self) -> list[Attempt]:
        rows = self.ledger.rows(DEAD_LETTERS)
        return [attempt_of(row | {"attempt": row["attempts"]}) for row in rows]

    def by_message(self, rows: Sequence[Row] | None = None) -> dict[Position, list[Row]]:
        found: dict[Position, list[Row]] = {}
        for row in sorted(self.ledger.rows(DELIVERIES) if rows is None else rows, key=attempt_of):
            found.setdefault(attempt_of(row)[:4], []).append(row)
        return found

    def unfinished(self) -> list[tuple[Position, int]]:
        """Messages without a last verdict that nobody gave up, with the attempts made."""
        made = self.by_message()
        found = []
        for message in self.held("t"):
            position = attempt_at(message)[:4]
            rows = made.get(position, [])
            if not (rows and rows[-1]["verdict"] in LAST) and position not in self.skips:
                found.append((position, len(rows)))
        return found


VERDICTS: dict[str, Verdict | None] = {
    "ok": None,
    "send": Verdict.ack(send=Outgoing(SENT, "x")),
    "retry": Verdict.retry(),
    "later": Verdict.retry(4),
    "dead": Verdict.dead("bad"),
}


def message_again(row: Row) -> Row:
    """The message that `jobs.retry` makes of a row."""
    kept = [(name, value) for name, value in row["properties"] if name not in _ORIGIN]
    origin = f"{row['broker_name']}/{row['queue_id']}/{row['queue_offset']}"
    return {
        "message_id": row["message_id"],
        "body": row["body"],
        "reconsume_times": row["attempt"],
        "properties": [*kept, ("RETRY_TOPIC", row["topic"]), ("LMQ_ORIGIN", origin)],
    }


def attempt_at(message: Row) -> Attempt:
    """Which attempt a message of the broker is."""
    origin = dict(message["properties"])
    if "LMQ_ORIGIN" not in origin:
        return message["topic"], message["broker_name"], message["queue_id"], message["queue_offset"], 1
    name, queue_id, offset = origin["LMQ_ORIGIN"].split("/")
    return origin["RETRY_TOPIC"], name, int(queue_id), int(offset), message["reconsume_times"] + 1


GroupModel.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestGroupModel = GroupModel.TestCase
