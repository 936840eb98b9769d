"""Which retries count as lost, and when they are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.views import TABLES
from jobs.group.lost_retries import LATE, LOOK_AGAIN_S, Attempt, LostRetries
from jobs.runtime.group_brokers import GroupBrokers
from structured_streaming.offsets import MessageQueue
from tests.support.ledger_rows import append, delivery, path_ledger
from tests.unit.jobs.model_cluster import ModelCluster

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
