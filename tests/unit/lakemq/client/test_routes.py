"""What a client knows of a cluster: who is asked, how often, and what is used while nobody answers."""

from __future__ import annotations

import pytest

from lakemq.client.broker_table import MISSING_S, BrokerRoute
from lakemq.client.deadline import Deadline
from lakemq.client.routes import ASK_TIMEOUT_S, FIRST_REFRESH_S, MOST_TOPICS, REFRESH_S
from store_native.errors import InvalidRequest, LakeMQError, Unavailable
from tests.support.scripted_endpoints import A_SLAVE, ONE, TWO, A, B, Endpoints


@pytest.fixture
def world() -> Endpoints:
    return Endpoints()


def test_the_first_name_server_that_answers_is_believed_and_asked_again_after_30_seconds(
    world: Endpoints,
) -> None:
    world.down = {ONE}
    routes = world.routes(ONE, TWO)
    expected = {"a": BrokerRoute("a", A, (A_SLAVE,), (1,)), "b": BrokerRoute("b", B)}
    assert routes.brokers() == expected
    assert {name: nums.writable for name, nums in routes.holders("orders").items()} == {"a": 2, "b": 2}
    world.asked.clear()
    world.now += REFRESH_S - 1
    assert routes.brokers() == expected
    assert set(routes.holders("orders")) == {"a", "b"}
    assert world.asked == [], "what is known is used for 30 s"
    world.topics["orders"] = ["b"]
    world.now += 1
    assert set(routes.holders("orders")) == {"b"}


def test_known_routes_go_on_while_all_name_servers_are_down_and_all_is_found_again(world: Endpoints) -> None:
    routes = world.routes(ONE, TWO)
    before = routes.brokers()
    held = routes.holders("orders")
    world.down = {ONE, TWO}
    for _ in range(10):
        world.now += REFRESH_S
        assert routes.brokers() == before
        assert routes.holders("orders") == held
    world.down = {ONE}
    world.registered[TWO] = {**world.registered[TWO], "c": {"0": "http://c:8090"}}
    world.now += REFRESH_S
    assert set(routes.brokers()) == {"a", "b", "c"}


def test_a_name_server_that_was_just_started_takes_no_route_away(world: Endpoints) -> None:
    routes = world.routes(ONE)
    before = routes.brokers()
    world.registered[ONE] = {}
    world.now += REFRESH_S
    assert routes.brokers() == before
    world.registered[ONE] = {"b": {"0": B}}
    world.now += REFRESH_S
    assert set(routes.brokers()) == {"a", "b"}
    world.now += MISSING_S
    assert set(routes.brokers()) == {"b"}, "a broker that stays away is forgotten"


def test_after_a_failure_the_routes_are_asked_for_again_but_not_all_the_time(world: Endpoints) -> None:
    routes = world.routes(ONE)
    routes.brokers()
    world.asked.clear()
    routes.failed()
    assert routes.brokers()["a"].master == A
    assert world.asked == []
    world.registered[ONE] = {"a": {"0": A_SLAVE}}
    world.now += FIRST_REFRESH_S
    assert routes.brokers()["a"].master == A_SLAVE, "the slave was promoted"
    world.now += FIRST_REFRESH_S
    routes.brokers()
    assert len(world.asked) == 1, "the failure is over"


def test_brokers_given_by_address_stand_for_themselves(world: Endpoints) -> None:
    world.down = {B}
    routes = world.routes(A, A_SLAVE, B)
    assert routes.brokers() == {"a": BrokerRoute("a", A, (A_SLAVE,), (1,))}
    assert routes.unknown() == [B], "nobody knows which broker that is"
    world.down = set()
    world.now += REFRESH_S
    assert routes.brokers()["b"] == BrokerRoute("b", B)
    world.down = {A}
    world.now += REFRESH_S
    assert routes.brokers()["a"] == BrokerRoute("a", A, (A_SLAVE,), (1,)), "it is known, and does not answer"
    assert set(routes.holders("orders")) == {"a", "b"}
    world.brokers[A_SLAVE] = ("a", 1, "async-master")
    world.epochs[A_SLAVE] = 65
    world.now += REFRESH_S
    assert routes.brokers()["a"].master == A_SLAVE


def test_where_nobody_answers_at_first_the_error_names_all(world: Endpoints) -> None:
    world.down = {ONE, TWO}
    with pytest.raises(Unavailable, match=f"{ONE}, {TWO}: no connection to {ONE}; no connection to {TWO}"):
        world.routes(ONE, TWO).brokers()


def test_a_topic_that_nobody_has_is_looked_for_again_soon(world: Endpoints) -> None:
    routes = world.routes(ONE)
    assert routes.holders("bills") == {}
    world.topics["bills"] = ["a"]
    assert routes.holders("bills") == {}
    world.now += FIRST_REFRESH_S
    assert set(routes.holders("bills")) == {"a"}


def test_a_topic_is_not_known_while_nobody_can_say_who_has_it(world: Endpoints) -> None:
    routes = world.routes(ONE)
    routes.brokers()
    world.down = {ONE}
    with pytest.raises(LakeMQError, match="no connection"):
        routes.holders("orders")


def test_nobody_is_unknown_once_a_name_server_has_named_the_brokers(world: Endpoints) -> None:
    world.down = {TWO}
    routes = world.routes(ONE, TWO)
    assert set(routes.brokers()) == {"a", "b"}
    assert routes.unknown() == [], "the other one is no broker that nobody knows"
    world.down = {ONE, TWO}
    world.now += REFRESH_S
    routes.brokers()
    assert routes.unknown() == []


def test_an_address_that_never_answered_is_unknown_also_where_nobody_was_asked_before(
    world: Endpoints,
) -> None:
    world.down = {B}
    assert world.routes(A, B).unknown() == [B]
    assert world.routes(A, A_SLAVE).unknown() == []
    world.registered[ONE] = {}
    assert world.routes(ONE, A, B).unknown() == [B], "a name server that names nobody tells nothing"


def test_an_address_that_never_answered_is_asked_by_the_next_call_after_a_second(world: Endpoints) -> None:
    world.down = {B}
    routes = world.routes(A, B)
    assert routes.unknown() == [B]
    world.asked.clear()
    world.now += FIRST_REFRESH_S / 2
    assert routes.unknown() == [B]
    assert world.asked == []
    world.down = set()
    world.now += FIRST_REFRESH_S / 2
    assert set(routes.brokers()) == {"a", "b"}
    assert routes.unknown() == []


def test_a_holder_that_is_unregistered_for_a_moment_keeps_the_topic(world: Endpoints) -> None:
    routes = world.routes(ONE)
    before = routes.holders("orders")
    world.registered[ONE] = {"b": {"0": B}}  # started anew: one broker was quicker than the other
    world.now += REFRESH_S
    assert routes.holders("orders") == before
    world.registered[ONE] = {}
    world.now += REFRESH_S
    assert routes.holders("orders") == before
    world.registered[ONE] = {"a": {"1": A_SLAVE}, "b": {"0": B}}  # a slave was quicker than its master
    world.now += REFRESH_S
    assert routes.holders("orders") == before
    assert routes.brokers()["a"] == BrokerRoute("a", A, (A_SLAVE,), (1,))
    world.registered[ONE] = {"b": {"0": B}}
    for _ in range(4):
        world.now += REFRESH_S
        routes.brokers()
    assert set(routes.holders("orders")) == {"b"}, "one that stays away is forgotten"


def test_a_holder_that_is_registered_says_itself_whether_it_has_a_topic(world: Endpoints) -> None:
    routes = world.routes(ONE)
    before = routes.holders("orders")
    world.without_table = {"a"}  # it is registered, and its table of topics has not come yet
    world.now += REFRESH_S
    assert routes.holders("orders") == before
    world.topics["orders"] = ["b"]
    world.now += REFRESH_S
    assert set(routes.holders("orders")) == {"b"}, "it was deleted there"


def test_a_holder_that_has_just_come_is_a_known_broker(world: Endpoints) -> None:
    routes = world.routes(ONE)
    routes.brokers()
    world.now += REFRESH_S - 1
    world.registered[ONE] = {**world.registered[ONE], "c": {"0": "http://c:8090"}}
    world.topics["orders"] = ["a", "b", "c"]
    assert set(routes.holders("orders")) <= routes.brokers().keys()


@pytest.mark.parametrize("by_name_server", [False, True])
def test_a_master_of_a_lower_epoch_than_one_that_was_seen_is_never_used(
    world: Endpoints, by_name_server: bool, caplog: pytest.LogCaptureFixture
) -> None:
    routes = world.routes(ONE) if by_name_server else world.routes(A, A_SLAVE)
    assert routes.brokers()["a"].master == A
    world.brokers[A_SLAVE] = ("a", 1, "async-master")
    world.epochs[A_SLAVE] = 65
    world.registered[ONE] = {"a": {"0": A_SLAVE}}
    world.now += REFRESH_S
    assert routes.brokers()["a"].master == A_SLAVE
    world.down = {A_SLAVE}
    world.registered[ONE] = {"a": {"0": A}}  # it does not know of the new one
    for _ in range(6):
        world.now += REFRESH_S
        assert routes.brokers()["a"].master == A_SLAVE
    said = [record for record in caplog.records if f"nothing is sent to {A}" in record.getMessage()]
    assert len(said) == by_name_server, "it is said once"


def test_two_masters_of_one_name_are_an_error_that_names_both(world: Endpoints) -> None:
    copied = "http://copied:8090"
    world.brokers[copied] = ("a", 0, "async-master")
    with pytest.raises(InvalidRequest, match=f"{A} and {copied} are both the master of broker a"):
        world.routes(A, copied).brokers()
    world.store_ids[copied] = A
    assert world.routes(A, copied).brokers()["a"].master == A, "one broker by two addresses"
    world.store_ids.clear()
    world.epochs[copied] = 65
    assert world.routes(A, copied).brokers()["a"].master == copied, "an old master and the promoted one"
    assert world.routes(A, A_SLAVE).brokers()["a"] == BrokerRoute("a", A, (A_SLAVE,), (1,))


def test_whoever_is_asked_has_a_part_of_the_calls_time(world: Endpoints) -> None:
    world.down = {ONE}
    routes = world.routes(ONE, TWO)
    routes.brokers(Deadline(1.5))
    assert 0.4 < world.given_s[0] <= 0.5, "two may be asked, and the call itself needs time"
    world.asked.clear()
    world.now += REFRESH_S
    routes.holders("orders", Deadline(60))
    assert max(world.given_s) <= ASK_TIMEOUT_S
    assert world.asked[0] == (TWO, "/api/v1/cluster"), "who did not answer comes last"


def test_a_broker_that_was_replaced_at_another_address_is_no_conflict_once_it_is_gone(
    world: Endpoints,
) -> None:
    replaced = "http://b-again:8090"
    world.brokers[replaced] = ("b", 0, "async-master")
    world.down = {replaced}
    routes = world.routes(A, B, replaced)
    assert routes.brokers()["b"].master == B
    world.down = {B}
    world.now += REFRESH_S
    assert routes.brokers()["b"].master == replaced
    world.down = set()
    world.now += REFRESH_S
    with pytest.raises(InvalidRequest, match="both the master of broker b"):
        routes.brokers()


def test_a_topic_is_known_to_be_nobodys_when_a_broker_of_the_list_is_gone_for_120_seconds(
    world: Endpoints,
) -> None:
    routes = world.routes(A, B)
    routes.brokers()
    world.down = {B}
    world.now += MISSING_S - 1
    with pytest.raises(Unavailable, match=f"no connection to {B}"):
        routes.holders("bills")
    world.now += 1
    assert routes.holders("bills") == {}


def test_nobody_is_asked_more_often_than_once_a_second_while_nothing_is_known(world: Endpoints) -> None:
    world.registered[ONE] = {}
    routes = world.routes(ONE)
    for _ in range(20):
        world.now += FIRST_REFRESH_S / 10
        with pytest.raises(Unavailable, match="no broker is registered with it yet"):
            routes.brokers()
    assert len(world.asked) == 2
    world.registered[ONE] = world.registered[TWO]
    world.now += FIRST_REFRESH_S
    assert set(routes.brokers()) == {"a", "b"}
    world.asked.clear()
    world.down = {ONE}
    for _ in range(20):
        world.now += FIRST_REFRESH_S / 10
        with pytest.raises(Unavailable, match="no connection"):
            routes.holders("orders")
    assert len([path for _, path in world.asked if "orders" in path]) == 2


def test_a_refusal_for_want_of_time_is_no_answer_for_the_next_call(world: Endpoints) -> None:
    world.down = {A}
    routes = world.routes(A)
    with pytest.raises(Unavailable):
        routes.brokers(Deadline(0.1))
    world.down = set()
    assert set(routes.brokers()) == {"a"}


def test_looking_for_addresses_that_never_answered_ends_with_its_call(world: Endpoints) -> None:
    world.down = {B}
    routes = world.routes(A, B)
    assert routes.unknown(Deadline(0.9)) == [B]
    assert max(world.given_s) <= 0.45


def test_topics_are_remembered_up_to_a_number_those_that_were_used_last(world: Endpoints) -> None:
    routes = world.routes(ONE)
    before = routes.holders("orders")
    for number in range(MOST_TOPICS - 1):
        routes.holders(f"topic-{number}")
    routes.holders("orders")
    routes.holders("one-too-many")
    world.asked.clear()
    assert routes.holders("orders") == before
    assert world.asked == [], "it was used a moment ago"
    routes.holders("topic-0")
    assert world.asked == [(ONE, "/api/v1/routes/topic-0")], "it is forgotten and asked for again"


def test_refusals_are_remembered_up_to_a_number(world: Endpoints) -> None:
    routes = world.routes(ONE)
    routes.brokers()
    world.down = {ONE}

    def asks(topic: str) -> int:
        before = len(world.asked)
        with pytest.raises(Unavailable, match="no connection"):
            routes.holders(topic)
        return len(world.asked) - before

    for number in range(MOST_TOPICS):
        assert asks(f"topic-{number}") == 1
    assert asks("topic-0") == 0, "it was refused a moment ago"
    assert asks("one-too-many") == 1
    assert asks("topic-0") == 0
    assert asks("topic-1") == 1, "the one that was asked for least recently makes room"
