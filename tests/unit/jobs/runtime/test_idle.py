"""What keeps a job from ending: messages, delayed ones too, of every broker that answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_query import select
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.views import TABLES
from jobs.runtime.hold_up import HoldUp
from jobs.runtime.idle import DELAYED_SAID_S, LEFT_OUT_S, IdleWatch, waiting_messages
from store_native.errors import InvalidRequest, Unavailable
from structured_streaming.offsets import MessageQueue
from structured_streaming.subscription import Subscription
from tests.support.ledger_rows import append, delivery, of_send, path_ledger
from tests.unit.jobs.model_cluster import ModelCluster


def test_delayed_messages_are_counted_over_all_levels() -> None:
    lines = ['lakemq_timing_messages{level="1"} 2', 'lakemq_timing_messages{level="3"} 5.0', "lakemq_x 9"]
    page = "\n".join(["# TYPE lakemq_timing_messages gauge", *lines, ""])
    assert waiting_messages(page) == 7


class Group:
    """A group that has read some brokers' queues, and a clock."""

    def __init__(self, ledger: PathLedger, cluster: ModelCluster) -> None:
        self.now = 0.0
        self.reached: dict[MessageQueue, int] = {}
        self.epochs: dict[str, int] = {}
        session = cast(Any, None)
        self.hold_up = HoldUp("g", clock=lambda: self.now)
        self.watch = IdleWatch(
            *(session, cluster.client(), ledger, "g", Subscription(frozenset({"t"}))),
            *(self.reached, self.epochs),
            hold_ups=[self.hold_up],
            clock=lambda: self.now,
        )

    def read(self, name: str, upto: int) -> None:
        self.reached[MessageQueue("t", name, 0)] = upto


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    for table in TABLES:
        made.create(table)
    return made


def test_a_group_is_idle_when_every_broker_is_read(ledger: PathLedger) -> None:
    group = Group(ledger, ModelCluster("broker-a", "broker-b"))
    group.read("broker-a", 10)
    assert not group.watch.is_idle()
    group.read("broker-b", 10)
    assert group.watch.is_idle()
    assert group.watch.left_out == []


def test_what_a_later_epoch_gave_again_is_not_read(ledger: PathLedger) -> None:
    cluster = ModelCluster("broker-a", several=False)
    group = Group(ledger, cluster)
    group.read("broker-a", 10)
    group.epochs["broker-a"] = 1
    cluster.epochs = ((1, 0), (65, 10))
    assert group.watch.is_idle(), "the promoted slave had all"
    for end in (9, 10, 8):
        cluster.epochs, cluster.ends["broker-a"] = ((1, 0), (65, 8)), end
        assert not group.watch.is_idle(), "what it lacked is other messages now"
    group.read("broker-a", 8)
    group.epochs["broker-a"] = 65
    assert group.watch.is_idle()
    del group.epochs["broker-a"]
    assert group.watch.is_idle(), "one that is not known is the log's"


def test_a_broker_that_does_not_answer_is_left_out_after_a_while_and_named(
    ledger: PathLedger, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ModelCluster("broker-a", "broker-b")
    group = Group(ledger, cluster)
    group.read("broker-a", 10)
    cluster.away = {"broker-b"}
    cluster.never = ["http://c"]
    assert not group.watch.is_idle(), "it may be back in a moment"
    group.now += LEFT_OUT_S
    assert group.watch.is_idle()
    assert group.watch.is_idle()
    assert group.watch.left_out == ["broker-b", "http://c"]
    assert [r.args for r in caplog.records] == [("broker-b",), ("http://c",)], "it is said once"
    cluster.ends["broker-a"] = 11
    assert not group.watch.is_idle()
    group.read("broker-a", 11)
    cluster.away, cluster.never = set(), []
    assert not group.watch.is_idle(), "it is back, and not read"
    assert group.watch.left_out == []


def test_where_no_broker_answers_nothing_is_idle(ledger: PathLedger) -> None:
    cluster = ModelCluster("broker-a", "broker-b")
    group = Group(ledger, cluster)
    cluster.away = {"broker-a", "broker-b"}
    with pytest.raises(Unavailable, match="no connection"):
        group.watch.is_idle()


def test_waiting_for_delayed_messages_alone_is_said_after_a_while_and_once(
    ledger: PathLedger, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ModelCluster("broker-a", "broker-b")
    group = Group(ledger, cluster)
    cluster.delayed = {"broker-a": 1, "broker-b": 1_200}
    group.read("broker-a", 10)
    group.now += 10 * DELAYED_SAID_S
    assert not group.watch.is_idle()
    group.read("broker-b", 10)
    assert not group.watch.is_idle()
    group.now += DELAYED_SAID_S - 1
    assert not group.watch.is_idle()
    assert caplog.messages == [], "it may be over in a moment"
    for _ in range(3):
        group.now += DELAYED_SAID_S
        assert not group.watch.is_idle()
    said = "nothing is left to do but to wait for 1,201 delayed messages at the broker, of any topic"
    assert caplog.messages == [said]
    cluster.delayed = {}
    assert group.watch.is_idle()


def test_a_wait_for_the_groups_own_retries_is_not_said_to_be_one_for_others(
    ledger: PathLedger, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ModelCluster("broker-a")
    group = Group(ledger, cluster)
    group.read("broker-a", 10)
    cluster.delayed = {"broker-a": 1}
    append(ledger, DELIVERIES, [delivery(1, verdict="RETRY")])
    for _ in range(3):
        assert not group.watch.is_idle()
        group.now += DELAYED_SAID_S
    assert caplog.messages == []
    append(ledger, DELIVERIES, [delivery(1, attempt=2, sends=1)])
    assert not group.watch.is_idle()
    assert caplog.messages == [], "what it sends waits too"
    append(ledger, SENT_MESSAGES, [of_send(SENT_MESSAGES, 1) | {"attempt": 2}])
    for _ in range(2):
        group.now += DELAYED_SAID_S
        assert not group.watch.is_idle()
        group.now += DELAYED_SAID_S
    said = "nothing is left to do but to wait for 1 delayed message at the broker, of any topic"
    assert caplog.messages == [said]


def test_what_verdicts_send_is_waited_for_unless_it_is_held_up_for_long(ledger: PathLedger) -> None:
    group = Group(ledger, ModelCluster("broker-a"))
    group.read("broker-a", 10)
    append(ledger, DELIVERIES, [delivery(0, sends=1)])
    assert not group.watch.is_idle()
    group.hold_up.meet(InvalidRequest("NO_PERMISSION", "topic[b] is not writable"))
    assert not group.watch.is_idle(), "it may pass"
    group.now += LEFT_OUT_S
    assert group.watch.is_idle()
    assert group.watch.left_unsent is not None
    assert group.watch.left_unsent.startswith("NO_PERMISSION: topic[b] is not writable; it is tried again")
    append(ledger, DELIVERIES, [delivery(1, verdict="RETRY")])
    assert not group.watch.is_idle(), "there is something else to do"
    append(ledger, DELIVERIES, [delivery(1, attempt=2)])
    append(ledger, SENT_MESSAGES, [of_send(SENT_MESSAGES, 0)])
    group.hold_up.end()
    assert group.watch.is_idle()
    assert group.watch.left_unsent is None


def test_tables_that_are_the_same_are_not_read_again(
    ledger: PathLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(ledger, ModelCluster("broker-a"))
    group.read("broker-a", 10)
    asked: list[str] = []

    def counted(location: Any, text: str, spark: Any) -> list[tuple[Any, ...]]:
        asked.append(text)
        return select(location, text, spark)

    monkeypatch.setattr("jobs.runtime.idle.select", counted)
    assert [group.watch.is_idle() for _ in range(5)] == [True] * 5
    assert len(asked) == 1
    append(ledger, DELIVERIES, [delivery(0, sends=1)])
    assert [group.watch.is_idle() for _ in range(5)] == [False] * 5
    assert len(asked) == 2
