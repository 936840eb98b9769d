"""Sends to the brokers of a cluster: where each goes, and what is said of it when a broker fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakemq.client import (
    BatchResult,
    Closed,
    InvalidRequest,
    OutcomeUnknown,
    SendResult,
    Unavailable,
)
from lakemq.client.cluster import Cluster
from lakemq.client.deadline import Deadline
from tests.support.scripted_endpoints import ONE, TWO, A, B, Endpoints

SETTINGS = {"timeout_s": 10.0, "retries": 0, "pool_size": 1, "retry_until": None}
STORED = SendResult("SEND_OK", "m", "o", "orders", "", 0, 0)


@pytest.fixture
def world() -> Endpoints:
    return Endpoints()


@pytest.fixture
def cluster(world: Endpoints) -> Iterator[Cluster[str]]:
    """Brokers a and b; the client of each is its name."""
    made = Cluster((A, B), SETTINGS, lambda transport: transport.name)
    made.routes = world.routes(A, B)
    yield made
    made.close()


def send(cluster: Cluster[str], on: Callable[[str, float, int | None], SendResult], *keys: str) -> SendResult:
    return cluster.send(
        "orders", on, sharding_keys=keys, idempotency_key="k", in_turn=True, deadline=Deadline(10)
    )


@pytest.mark.parametrize("code", ["ARGUMENT_ILLEGAL", "TOPIC_NOT_EXIST"])
def test_a_refusal_after_an_attempt_without_an_answer_leaves_open_what_became_of_it(
    cluster: Cluster[str], code: str
) -> None:
    tried: list[str] = []

    def on(name: str, _: float, version: int | None) -> SendResult:
        tried.append(name)
        if len(tried) == 1:
            raise OutcomeUnknown.of("no answer", "k")
        raise InvalidRequest(code, "refused", index=0)

    with pytest.raises(OutcomeUnknown, match="no answer, and elsewhere it was refused") as unknown:
        send(cluster, on)
    assert len(set(tried)) == 2
    assert unknown.value.idempotency_key == "k"
    assert "index" not in unknown.value.context
    with pytest.raises(InvalidRequest):
        send(cluster, on)


def test_each_message_of_a_batch_that_was_repeated_elsewhere_says_so(cluster: Cluster[str]) -> None:
    tried: list[str] = []

    def on(name: str, _: float, version: int | None) -> BatchResult:
        tried.append(name)
        if len(tried) == 1:
            raise OutcomeUnknown.of("no answer", "k")
        return BatchResult("SEND_OK", 2, (), results=(STORED, STORED))

    deadline = Deadline(10)
    batch = cluster.send("orders", on, sharding_keys=(), idempotency_key="k", in_turn=True, deadline=deadline)
    assert batch.repeated_elsewhere
    assert [result.repeated_elsewhere for result in batch.results] == [True, True]


@pytest.mark.parametrize("key", [f"key-{number}" for number in range(8)])
def test_a_send_that_no_broker_answered_is_repeated_first_at_the_one_that_may_have_it(
    cluster: Cluster[str], key: str
) -> None:
    """Its key was the producer's own, and its broker the one whose turn it was; the caller gives that key."""
    tried: list[str] = []
    answers = iter([OutcomeUnknown.of("no answer", key), Closed("STORE_POISONED", "read-only")])

    def on(name: str, _: float, version: int | None) -> SendResult:
        tried.append(name)
        for error in answers:
            raise error
        return STORED

    given: Any = {"sharding_keys": (), "idempotency_key": key, "deadline": Deadline(10)}
    with pytest.raises(Closed):
        cluster.send("orders", on, in_turn=True, **given)
    assert cluster.send("orders", on, in_turn=False, **given).repeated_elsewhere, "both may have it"
    assert len(set(tried)) == 2
    assert tried[-1] == tried[-2]
    assert not cluster.send("orders", on, in_turn=False, **given).repeated_elsewhere, "it is known"


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize(("retries", "retry_until", "comes_after"), [(2, None, 2), (0, 8.0, 5)])
def test_a_send_whose_name_servers_do_not_answer_at_first_asks_again(
    world: Endpoints, key: str | None, retries: int, retry_until: float | None, comes_after: int
) -> None:
    world.down = {ONE, TWO}
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        world.now += seconds
        if len(paused) == comes_after:
            world.down = set()

    settings = {**SETTINGS, "retries": retries}
    cluster: Cluster[str] = Cluster((ONE, TWO), settings, lambda transport: transport.name, pause=pause)
    cluster.routes = world.routes(ONE, TWO)
    sent = cluster.send(
        "orders",
        lambda *_: STORED,
        sharding_keys=("s",),
        idempotency_key=key,
        in_turn=False,
        deadline=Deadline(8),
        until_deadline=retry_until is not None,
    )
    assert sent == STORED
    assert len(paused) == comes_after
    assert min(paused) >= 1.0, "they are asked once a second"
    cluster.close()


def test_a_send_whose_name_servers_never_answer_ends_in_its_time(world: Endpoints) -> None:
    world.down = {ONE, TWO}
    paused: list[float] = []
    settings = {**SETTINGS, "retries": 2}
    cluster: Cluster[str] = Cluster(
        (ONE, TWO), settings, lambda transport: transport.name, pause=paused.append
    )
    cluster.routes = world.routes(ONE, TWO)
    for within_s, repeats in ((10, 2), (0.5, 0)):
        paused.clear()
        with pytest.raises(Unavailable, match="no broker is known through"):
            cluster.send(
                "orders",
                lambda *_: STORED,
                sharding_keys=(),
                idempotency_key="k",
                in_turn=True,
                deadline=Deadline(within_s),
            )
        assert len(paused) == repeats
    cluster.close()


def test_a_send_without_a_key_that_got_no_answer_goes_to_no_other_broker(cluster: Cluster[str]) -> None:
    tried: list[str] = []

    def on(name: str, _: float, version: int | None) -> SendResult:
        tried.append(name)
        if len(tried) == 1:
            raise OutcomeUnknown.of("no answer", None)
        return STORED

    given: Any = {"sharding_keys": (), "idempotency_key": None, "in_turn": True, "deadline": Deadline(10)}
    with pytest.raises(OutcomeUnknown, match="no answer"):
        cluster.send("orders", on, **given)
    assert len(tried) == 1, "it may have stored the message, and another could not tell"
