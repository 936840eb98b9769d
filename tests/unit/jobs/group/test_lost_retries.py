"""Which retries count as lost, and when they are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.views import TABLES
from jobs.group.lost_retries import LATE, LOOK_AGAIN_S, Attempt, LostRetries
from jobs.handler.loader import LoadedHandler
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.runtime.group_brokers import GroupBrokers
from lakemq.handler import Verdict
from structured_streaming.offsets import MessageQueue
from tests.support.ledger_rows import append, delivery, path_ledger
from tests.support.model_broker import ModelBroker
from tests.support.model_ledger import ModelLedger
from tests.unit.jobs.group.model_driver import Driver, Run, Surroundings
from tests.unit.jobs.model_cluster import ModelCluster


class Failing:
    """What a model's settings take for a handler."""

    target = "model:handle"

    def load(self) -> LoadedHandler:
        return LoadedHandler(lambda message: Verdict.retry(), vectorised=False)


DUE = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
AGAIN = "%RETRY%g"


class Group:
    """A group with retries in its ledger, and clocks."""

    def __init__(self, ledger: PathLedger, *names: str) -> None:
        self.cluster = ModelCluster(*names, topics=(AGAIN,), several=len(names) > 1)
        self.cluster.ends = dict.fromkeys(names, 0)
        self.reached: dict[MessageQueue, int] = {}
        self.sent: list[list[Attempt]] = []
        self.refused = False
        self.passed = 0.0
        self.now = DUE + LATE + timedelta(seconds=1)
        self.lost = LostRetries(
            *(ledger, "g", GroupBrokers(self.cluster.client()), self.reached),
            self._send,
            clock=lambda: self.passed,
            now=lambda: self.now,
        )

    def _send(self, late: Sequence[Attempt]) -> None:
        if self.refused:
            raise PySparkException("no")
        self.sent.append(list(late))


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    for table in TABLES:
        made.create(table)
    rows = [
        delivery(0, verdict="RETRY", next_attempt_at=DUE),
        delivery(1, verdict="RETRY", next_attempt_at=DUE + timedelta(minutes=1)),
        delivery(2, verdict="RETRY", next_attempt_at=DUE),
        delivery(2, attempt=2),
        delivery(3, verdict="RETRY", next_attempt_at=DUE, consumer_group="other"),
        delivery(4),
    ]
    append(made, DELIVERIES, rows)
    return made


def test_what_is_late_and_has_no_next_attempt_is_sent_again(ledger: PathLedger) -> None:
    group = Group(ledger, "broker-a")
    assert group.lost.look() == 1
    assert [(attempt[3:]) for attempt in group.sent[0]] == [(0, 1)]
    group.now += timedelta(minutes=1)
    assert group.lost.look() == 0, "not so soon again"
    group.passed += LOOK_AGAIN_S
    assert group.lost.look() == 2


def test_while_something_waits_on_the_retry_topic_nothing_is_lost(ledger: PathLedger) -> None:
    group = Group(ledger, "broker-a", "broker-b")
    group.cluster.ends["broker-b"] = 3
    group.reached[MessageQueue(AGAIN, "broker-b", 0)] = 2
    assert group.lost.look() == 0
    group.cluster.away = {"broker-b"}
    assert group.lost.look() == 0, "nobody knows"
    group.cluster.away = set()
    group.reached[MessageQueue(AGAIN, "broker-b", 0)] = 3
    assert group.lost.look() == 1, "what was not looked at is not put off"


def test_a_group_without_a_retry_topic_has_lost_none(ledger: PathLedger) -> None:
    group = Group(ledger, "broker-a")
    group.cluster.topics = ()
    assert group.lost.look() == 0
    assert group.sent == []


def test_what_cannot_be_sent_ends_no_group(ledger: PathLedger, caplog: pytest.LogCaptureFixture) -> None:
    group = Group(ledger, "broker-a")
    group.refused = True
    assert group.lost.look() == 1
    assert "looked for again later: no" in caplog.text
    group.refused, group.passed = False, LOOK_AGAIN_S
    assert group.lost.look() == 1
    assert len(group.sent) == 1


def test_a_batch_looks_before_it_fails_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it fails is sent behind its commit: a call that failed long before that would count as lost."""
    model = ModelLedger([DELIVERIES, CONSUMER_OFFSETS, DEAD_LETTERS, SKIPPED_MESSAGES])
    policy = RetryPolicy.of("10s", [1_000, 10_000], 3)
    broker = ModelBroker({"t": 1, AGAIN: 1})
    around = Surroundings(broker, model, policy, Failing(), 2, [], lambda run: None)
    driver = Driver(around, tmp_path)
    broker.send("t", 0, {"message_id": "id", "body": b"x"})
    done: list[str] = []
    monkeypatch.setattr(driver.job, "look_for_lost_retries", lambda: done.append("look"))
    assert driver.run(1, Run(frozenset(), 0), beside=lambda moment, table: done.append(f"{moment} {table}"))
    assert done[:2] == ["look", "before deliveries"]
    assert done.count("look") == 1
