"""Over which brokers a client knows a topic to be ordered: the newest list, whoever is away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakemq.client import InvalidRequest, OutcomeUnknown, SendResult, Unavailable
from lakemq.client.broker_table import MISSING_S
from lakemq.client.broker_transport import LOOK_AGAIN_S
from lakemq.client.cluster import Cluster
from lakemq.client.deadline import Deadline
from lakemq.client.routes import REFRESH_S
from store_native.order_conf import OrderConf
from tests.support.scripted_endpoints import ONE, A, B, Endpoints

OLD, NEW = OrderConf.of(1, {"b": 2}), OrderConf.of(2, {"a": 2, "b": 2})
STORED = SendResult("SEND_OK", "m", "o", "orders", "", 0, 0)


@pytest.fixture
def world() -> Endpoints:
    made = Endpoints()
    made.order_confs = {"a": NEW, "b": OLD}
    return made


@pytest.mark.parametrize("by", [(ONE,), (A, B)])
def test_the_newest_list_of_those_that_brokers_have_counts(world: Endpoints, by: tuple[str, ...]) -> None:
    assert world.routes(*by).order_conf("orders") == NEW


@pytest.mark.parametrize("by", [(ONE,), (A, B)])
def test_an_older_list_never_takes_the_place_of_a_newer_one(world: Endpoints, by: tuple[str, ...]) -> None:
    routes = world.routes(*by)
    assert routes.order_conf("orders") == NEW
    world.down, world.topics["orders"] = {A}, ["b"]
    world.registered[ONE] = {"b": {"0": B}}
    for _ in range(20):
        world.now += REFRESH_S
        assert routes.order_conf("orders") == NEW
    world.down = {A, B, ONE}
    world.now += REFRESH_S
    assert routes.order_conf("orders") == NEW


def test_a_list_that_only_a_name_server_remembers_counts(world: Endpoints) -> None:
    world.told, world.topics["orders"] = NEW, []
    routes = world.routes(ONE)
    assert routes.holders("orders") == {}
    assert routes.order_conf("orders") == NEW


@pytest.mark.parametrize("again", [[], ["a", "b"]])
def test_a_list_is_forgotten_when_all_its_brokers_are_there_and_none_has_it(
    world: Endpoints, again: list[str]
) -> None:
    routes = world.routes(ONE)
    assert routes.order_conf("orders") == NEW
    world.topics["orders"], world.order_confs = again, {}
    world.now += REFRESH_S
    assert routes.order_conf("orders") is None


def test_a_list_stays_as_long_as_its_only_broker_is_away(world: Endpoints) -> None:
    world.order_confs, world.topics["orders"] = {"b": OLD}, ["b"]
    routes = world.routes(ONE)
    assert routes.order_conf("orders") == OLD
    world.down, world.topics["orders"] = {B}, []
    world.registered[ONE] = {"a": {"0": A}}
    for _ in range(2 * int(MISSING_S / REFRESH_S)):
        world.now += REFRESH_S
        assert routes.order_conf("orders") == OLD, "its keys would go to other brokers"


def test_a_list_that_a_broker_tells_counts_where_it_is_newer_alone(world: Endpoints) -> None:
    world.order_confs = {"a": OLD, "b": OLD}
    routes = world.routes(ONE)
    assert routes.order_conf("orders") == OLD
    assert not routes.learned("orders", OLD)
    assert routes.learned("orders", NEW)
    assert routes.order_conf("orders") == NEW
    assert not routes.learned("orders", OLD)
    assert routes.order_conf("orders") == NEW


def test_two_lists_of_one_version_are_refused_and_both_are_named(world: Endpoints) -> None:
    world.order_confs = {"a": OrderConf.of(2, {"a": 2}), "b": OrderConf.of(2, {"b": 2})}
    routes = world.routes(ONE)
    assert set(routes.holders("orders")) == {"a", "b"}
    with pytest.raises(InvalidRequest, match=r"TOPIC_CONFLICT: .*version 2, a has a:2, b has b:2"):
        routes.order_conf("orders")


class Clients:
    """A cluster of the world's brokers; the client of each is its name."""

    def __init__(self, world: Endpoints) -> None:
        self.pauses = 0
        self.refuses_by: OrderConf | None = None
        self.world = world
        self.cluster: Cluster[str] = Cluster(
            (ONE,),
            {"timeout_s": 10.0, "retries": 0, "pool_size": 1, "retry_until": None},
            lambda transport: transport.name,
            pause=self._pause,
        )
        self.cluster.routes = world.routes(ONE)

    def send(self, key: str, *, until_deadline: bool = False, seconds: float = 60) -> str:
        """Sends where everybody answers that a route names; returns the broker."""
        tried: list[str] = []

        def on(name: str, _: float, version: int | None) -> SendResult:
            tried.append(name)
            if self.refuses_by is not None:
                said = {"version": self.refuses_by.version, "brokers": self.refuses_by.brokers}
                raise InvalidRequest("WRONG_BROKER", "another's", order_conf=said)
            if name not in self.cluster.routes.brokers():
                raise Unavailable("SERVICE_NOT_AVAILABLE", "no broker is known", sent=False)
            return STORED

        self.cluster.send(
            "orders",
            on,
            sharding_keys=(key,),
            idempotency_key="k",
            in_turn=True,
            deadline=Deadline(seconds),
            until_deadline=until_deadline,
        )
        return tried[-1]

    def _pause(self, seconds: float) -> None:
        assert seconds == LOOK_AGAIN_S
        self.pauses += 1
        self.world.now += seconds
        if self.pauses == 20:
            self.world.registered[ONE] = {"a": {"0": A}, "b": {"0": B}}


@pytest.fixture
def clients(world: Endpoints) -> Iterator[Clients]:
    world.topics["orders"] = ["a"]
    world.registered[ONE] = {"a": {"0": A}}
    made = Clients(world)
    yield made
    made.cluster.close()


def of_broker(clients: Clients, name: str) -> str:
    keys = (f"customer-{number}" for number in range(100))
    return next(key for key in keys if clients.cluster.broker_of([key], "orders") == name)


def test_a_key_of_a_broker_that_no_route_has_fails_at_once_and_is_sent_to_no_other(clients: Clients) -> None:
    assert clients.send(of_broker(clients, "a")) == "a"
    with pytest.raises(
        Unavailable, match=r"topic orders is ordered.*broker b's also while it is away"
    ) as away:
        clients.send(of_broker(clients, "b"))
    assert away.value.context == {"sent": False, "broker_name": "b", "topic": "orders"}
    assert clients.pauses == 0


def test_a_send_that_is_repeated_until_a_time_waits_for_its_broker(clients: Clients) -> None:
    assert clients.send(of_broker(clients, "b"), until_deadline=True) == "b"
    assert clients.pauses >= 20


def test_a_wait_for_a_broker_leaves_time_for_a_last_try(clients: Clients) -> None:
    with pytest.raises(Unavailable, match="topic orders is ordered"):
        clients.send(of_broker(clients, "b"), until_deadline=True, seconds=2 * LOOK_AGAIN_S)
    assert clients.pauses == 0


def test_a_newer_list_that_a_broker_refuses_by_is_gone_by_at_once(world: Endpoints) -> None:
    clients = Clients(world)
    assert {clients.send(key) for key in ("customer-0", "customer-4")} == {"a", "b"}
    assert clients.cluster.routes.learned("orders", OrderConf.of(3, {"a": 2}))
    assert {clients.send(key) for key in ("customer-0", "customer-4")} == {"a"}
    world.now += REFRESH_S
    assert {clients.send(key) for key in ("customer-0", "customer-4")} == {"a"}, "it is not forgotten"


def test_a_refusal_by_a_list_that_is_not_newer_is_the_callers(world: Endpoints) -> None:
    clients = Clients(world)
    clients.refuses_by = NEW
    with pytest.raises(InvalidRequest, match="WRONG_BROKER"):
        clients.send("customer-0")


class Answers:
    """What brokers make of one send after another, and which broker each went to by which version."""

    def __init__(self, clients: Clients) -> None:
        self._cluster = clients.cluster
        self.asked: list[tuple[str, int | None]] = []

    def send(self, *answers: SendResult | Exception, key: str | None = "k") -> SendResult:
        left = iter(answers)

        def on(name: str, _: float, version: int | None) -> SendResult:
            self.asked.append((name, version))
            answer = next(left)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return self._cluster.send(
            "orders",
            on,
            sharding_keys=("customer-0",),
            idempotency_key=key,
            in_turn=False,
            deadline=Deadline(60),
        )


@pytest.fixture
def moved(world: Endpoints) -> Iterator[tuple[Answers, Clients]]:
    """A send of b's got no answer, and by a newer list its key is a's."""
    clients = Clients(world)
    world.order_confs = {"b": OLD}
    answers = Answers(clients)
    with pytest.raises(OutcomeUnknown):
        answers.send(OutcomeUnknown.of("no answer", "k"))
    assert clients.cluster.routes.learned("orders", ONLY_A)
    yield answers, clients
    clients.cluster.close()


ONLY_A = OrderConf.of(3, {"a": 2})


def test_a_repeat_of_what_got_no_answer_asks_the_broker_that_may_have_it(
    moved: tuple[Answers, Clients],
) -> None:
    answers, _ = moved
    sent = answers.send(STORED)
    assert not sent.repeated_elsewhere
    assert answers.asked == [("b", 1), ("b", 1)], "by the list of then: it refuses what it does not have"
    answers.send(STORED)
    answers.send(STORED, key="another")
    assert answers.asked[2:] == [("a", 3), ("a", 3)], "that one is known, and others go by the list"


def test_a_repeat_that_the_former_broker_refuses_was_not_stored_there(
    moved: tuple[Answers, Clients],
) -> None:
    answers, _ = moved
    said = {"version": ONLY_A.version, "brokers": ONLY_A.brokers}
    sent = answers.send(InvalidRequest("WRONG_BROKER", "another's", order_conf=said), STORED)
    assert not sent.repeated_elsewhere
    assert answers.asked[1:] == [("b", 1), ("a", 3)]


def test_a_repeat_goes_nowhere_else_while_the_broker_that_may_have_it_is_away(
    moved: tuple[Answers, Clients],
) -> None:
    answers, _ = moved
    for _ in range(2):
        with pytest.raises(Unavailable):
            answers.send(Unavailable("SERVICE_NOT_AVAILABLE", "no connection", sent=False))
    assert answers.asked == [("b", 1)] * 3


def test_a_repeat_says_that_it_may_be_stored_twice_once_no_route_has_the_broker_any_more(
    moved: tuple[Answers, Clients], world: Endpoints
) -> None:
    answers, _ = moved
    world.registered[ONE], world.topics["orders"] = {"a": {"0": A}}, ["a"]
    world.order_confs = {"a": ONLY_A}
    world.now += MISSING_S + REFRESH_S
    sent = answers.send(STORED)
    assert sent.repeated_elsewhere
    assert answers.asked[1:] == [("a", 3)]
