"""A checkpoint older than the ledger is refused, whoever went on meanwhile: nothing is handled twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.known_keys import MOST_SPANS
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from jobs.group.older_checkpoint import refuse_overtaken
from jobs.handler.loader import LoadedHandler
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.runtime.checkpoint import StreamCheckpoint
from lakemq.handler import DeliveredMessage, Verdict
from store_native.errors import InvalidRequest
from structured_streaming.offsets import MessageQueue
from tests.support.ledger_rows import append, delivery, path_ledger
from tests.support.model_broker import ModelBroker
from tests.support.model_ledger import ModelLedger
from tests.unit.jobs.group.model_driver import RETRIES, Driver, Fault, KilledError, Run, Surroundings


class Handler:
    target = "model:handle"

    def __init__(self) -> None:
        self.had: list[int] = []

    def load(self) -> LoadedHandler:
        return LoadedHandler(self._handle, vectorised=False)

    def _handle(self, message: DeliveredMessage) -> Verdict | None:
        self.had.append(message.queue_offset)
        return Verdict.retry() if message.body == b"retry" else None


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def around(handler: Handler) -> Surroundings:
    ledger = ModelLedger([DELIVERIES, CONSUMER_OFFSETS, DEAD_LETTERS, SKIPPED_MESSAGES])
    broker = ModelBroker({"t": 1, RETRIES: 1})
    policy = RetryPolicy.of("10s", [1_000, 10_000], 3)
    return Surroundings(broker, ledger, policy, handler, 2, [], lambda run: None)


def send(around: Surroundings, *bodies: bytes) -> None:
    for body in bodies:
        around.broker.send("t", 0, {"message_id": "id", "body": body})


def run(driver: Driver, most: int = 100, **more: Any) -> bool:
    return driver.run(most, Run(frozenset(), 0), **more)


def offsets(around: Surroundings) -> list[int]:
    return sorted(row["queue_offset"] for row in around.ledger.rows(DELIVERIES))


def test_a_checkpoint_is_refused_that_another_one_has_overtaken(
    around: Surroundings, handler: Handler, tmp_path: Path
) -> None:
    send(around, b"", b"")
    assert run(Driver(around, tmp_path / "a"), most=1)
    assert run(Driver(around, tmp_path / "b"), most=1)
    send(around, b"")
    with pytest.raises(InvalidRequest, match="older than the ledger") as refused:
        run(Driver(around, tmp_path / "a"))
    assert refused.value.code == "ARGUMENT_ILLEGAL"
    assert handler.had == offsets(around) == [0, 1]
    assert run(Driver(around, tmp_path / "b"))
    assert handler.had == offsets(around) == [0, 1, 2]


def test_so_it_is_where_the_other_one_ended_before_its_report(
    around: Surroundings, handler: Handler, tmp_path: Path
) -> None:
    send(around, b"", b"")
    assert run(Driver(around, tmp_path / "a"), most=1)
    with pytest.raises(KilledError):
        run(Driver(around, tmp_path / "b"), fault=Fault("after", DELIVERIES.name))
    with pytest.raises(InvalidRequest, match="older than the ledger"):
        run(Driver(around, tmp_path / "a"))
    assert handler.had == [0, 1]


def test_so_it_is_where_its_own_last_batch_is_in_the_ledger_and_comes_again(
    around: Surroundings, handler: Handler, tmp_path: Path
) -> None:
    send(around, b"", b"")
    with pytest.raises(KilledError):
        run(Driver(around, tmp_path / "a"), most=1, fault=Fault("after", DELIVERIES.name))
    assert run(Driver(around, tmp_path / "b"))
    with pytest.raises(InvalidRequest, match="older than the ledger"):
        run(Driver(around, tmp_path / "a"))
    assert handler.had == [0, 1]


@pytest.mark.parametrize("done", [0, 1])
def test_a_checkpoint_is_refused_that_does_not_know_of_its_last_batch(
    around: Surroundings, handler: Handler, tmp_path: Path, done: int
) -> None:
    """It would plan that batch again, with more messages, and take them all for handled."""
    send(around, b"")
    driver = Driver(around, tmp_path / "a")
    if done:
        assert run(driver)
        send(around, b"")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert run(driver)
    send(around, b"")
    for _ in range(2):  # nothing of it is planned by then
        with pytest.raises(InvalidRequest, match="older than the ledger"):
            run(Driver(around, tmp_path / "copy"))
    assert run(Driver(around, tmp_path / "b"))
    assert handler.had == offsets(around) == list(range(done + 2))


def test_a_checkpoint_goes_on_whatever_earlier_ones_had(
    around: Surroundings, handler: Handler, tmp_path: Path
) -> None:
    send(around, b"", b"")
    assert run(Driver(around, tmp_path / "a"))
    for place in ("b", "c"):
        send(around, b"")
        with pytest.raises(KilledError):
            run(Driver(around, tmp_path / place), fault=Fault("after", DELIVERIES.name))
        assert run(Driver(around, tmp_path / place))
    send(around, b"")
    assert run(Driver(around, tmp_path / "c"))
    assert handler.had == offsets(around) == [0, 1, 2, 3, 4]


def test_a_ledger_on_a_path_answers_the_same(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    checkpoint = StreamCheckpoint(tmp_path / "checkpoint")
    append(ledger, DELIVERIES, [delivery(offset) for offset in range(3)])

    def refuse(query_id: str, at: int, **of: Any) -> None:
        queue = MessageQueue("orders", "broker-a", 0)._replace(**of)
        reached = {queue: at} | {MessageQueue(f"t{n}", "broker-a", 0): 0 for n in range(MOST_SPANS)}
        refuse_overtaken(checkpoint, ledger, "g", query_id, reached, cast(Any, None))

    for harmless in (
        {"at": 3},
        {"at": 0, "broker_name": "it's"},
        {"at": 0, "queue_id": 1},
        {"at": 0, "topic": "t"},
    ):
        refuse("other", **cast(Any, harmless))
    refuse("q", 0)
    with pytest.raises(InvalidRequest, match="topic orders, queue 0: the group has handled offset 2 "):
        refuse("other", 2)


def test_a_retry_topic_that_was_made_again_is_no_reason(
    around: Surroundings, handler: Handler, tmp_path: Path
) -> None:
    origin = [("RETRY_TOPIC", "t"), ("LMQ_ORIGIN", "b/0/0")]
    back = {"message_id": "id", "body": b"", "reconsume_times": 1, "properties": origin}
    send(around, b"retry")
    first = Driver(around, tmp_path / "a")
    assert run(first)
    around.broker.send(RETRIES, 0, back)
    assert run(first)
    (queue,) = (each for each in around.broker.queues if each.topic == RETRIES)
    around.broker.queues[queue].clear()
    second = Driver(around, tmp_path / "b")
    send(around, b"")
    assert run(second)
    assert handler.had == [0, 0, 1]
