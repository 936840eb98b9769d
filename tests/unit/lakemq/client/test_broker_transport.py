"""The brokers of one name: a slave answers reads while its master does not; what it lacks is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from lakemq.client.broker_table import BrokerRoute
from lakemq.client.broker_transport import BrokerTransport
from lakemq.client.errors import OutcomeUnknown
from lakemq.client.routes import Routes
from lakemq.client.transport import Answer, Transport
from store_native.errors import InvalidRequest, LakeMQError, Unavailable

MASTER, SLAVE = "http://master", "http://slave"


class Pair:
    """A master and a slave: what each raises, None to answer."""

    def __init__(self) -> None:
        self.raises: dict[str, LakeMQError | None] = {MASTER: None, SLAVE: None}
        self.slaves: tuple[str, ...] = (SLAVE,)
        self.parted: set[str] = set()
        self.answers: dict[str, Answer] = {}

    def brokers(self, deadline: object = None) -> dict[str, BrokerRoute]:
        return {
            "broker-a": BrokerRoute("broker-a", MASTER, self.slaves, tuple(range(1, len(self.slaves) + 1)))
        }

    def failed(self) -> None:
        pass

    def transport_to(self, address: str) -> Transport:
        class To:
            def call(to, method: str, path: str, **how: Any) -> Answer:
                error = self.raises[address]
                if error is not None:
                    raise error
                if address in self.answers:
                    return replace(self.answers[address], endpoint=address)
                return Answer(200, {}, b"{}", address, log_parted=address in self.parted)

        return cast(Transport, To())

    def transport(self, retry_until: float | None = None) -> BrokerTransport:
        routes, no_pause = cast(Routes, self), lambda seconds: None
        return BrokerTransport(
            *("broker-a", routes, self.transport_to), timeout_s=1.0, retry_until=retry_until, pause=no_pause
        )


def test_answers_of_slaves_are_counted() -> None:
    pair = Pair()
    transport = pair.transport()
    assert not transport.call("GET", "/x").from_slave
    assert transport.slave_answers == 0
    pair.raises[MASTER] = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
    assert transport.call("GET", "/x").from_slave
    assert transport.slave_answers == 1


def test_a_slave_whose_log_parted_from_its_masters_is_not_read_in_its_place() -> None:
    pair = Pair()
    pair.parted.add(SLAVE)
    transport = pair.transport()
    assert transport.call("GET", "/x").endpoint == MASTER
    pair.raises[MASTER] = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
    for _ in range(2):  # the second time the slave is asked first
        with pytest.raises(Unavailable, match=f"no connection; {SLAVE}: a slave whose log parted from"):
            transport.call("GET", "/x")
    pair.slaves = (SLAVE, "http://another")
    pair.raises["http://another"] = None
    assert transport.call("GET", "/x").endpoint == "http://another"
    assert transport.slave_answers == 1


class Promoting(Pair):
    """A pair whose slave is promoted, as the routes say, once they were called wrong so often."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after
        self.raises[MASTER] = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")

    def brokers(self, deadline: object = None) -> dict[str, BrokerRoute]:
        return {"broker-a": BrokerRoute("broker-a", MASTER if self._after > 0 else SLAVE, ())}

    def failed(self) -> None:
        self._after -= 1


def repeats(pair: Pair, **how: Any) -> Answer:
    transport = pair.transport(retry_until=60.0)
    return transport.call("POST", "/x", stores=lambda answer: answer, **how)


@pytest.mark.parametrize("after", [1, 2, 7])
def test_what_is_repeated_until_a_time_goes_where_the_master_is_by_then(after: int) -> None:
    assert repeats(Promoting(after)).endpoint == SLAVE


def test_without_an_answer_it_is_repeated_under_its_key_only() -> None:
    promoting = Promoting(3)
    promoting.raises[MASTER] = OutcomeUnknown.of("POST /x got no answer", "k")
    assert repeats(promoting, idempotency_key="k").endpoint == SLAVE
    promoting = Promoting(3)
    promoting.raises[MASTER] = OutcomeUnknown.of("POST /x got no answer", None)
    with pytest.raises(OutcomeUnknown, match="broker broker-a"):
        repeats(promoting)


def test_what_the_new_master_refuses_may_be_stored_at_the_old_one() -> None:
    promoting = Promoting(1)
    promoting.raises[MASTER] = OutcomeUnknown.of("POST /x got no answer", "k")
    promoting.raises[SLAVE] = InvalidRequest("MESSAGE_ILLEGAL", "no body")
    with pytest.raises(OutcomeUnknown, match=r"its repeat was refused \(MESSAGE_ILLEGAL: no body\)"):
        repeats(promoting, idempotency_key="k")


@pytest.mark.parametrize("code", ["TOPIC_NOT_EXIST", "QUEUE_NOT_EXIST", "GROUP_NOT_EXIST"])
def test_what_a_slave_does_not_know_its_master_may_have(code: str) -> None:
    pair = Pair()
    pair.raises[MASTER] = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
    pair.raises[SLAVE] = InvalidRequest(code, "t does not exist")
    with pytest.raises(Unavailable, match=r"broker broker-a: .*slave does not know it: t does not exist"):
        pair.transport().call("GET", "/x")
    pair.raises[MASTER] = InvalidRequest(code, "t does not exist")
    with pytest.raises(InvalidRequest, match=code):
        pair.transport().call("GET", "/x")


PULL = "/topics/t/queues/0/messages"
SUGGESTED = "X-LakeMQ-Suggested-Broker-Id"
FOUND = b'{"status":"FOUND","messages":[]}'


def test_a_queue_is_read_at_the_slave_that_is_suggested_while_it_has_messages_of_it() -> None:
    pair = Pair()
    transport = pair.transport()
    pair.answers = {MASTER: Answer(200, {SUGGESTED: "1"}, FOUND), SLAVE: Answer(200, {SUGGESTED: "1"}, FOUND)}
    assert [transport.call("GET", PULL).endpoint for _ in range(3)] == [MASTER, SLAVE, SLAVE]
    assert transport.call("GET", "/topics/t/queues/1/messages").endpoint == MASTER, "each queue by itself"
    assert transport.call("PUT", PULL).endpoint == MASTER
    pair.answers[SLAVE] = Answer(200, {}, b'{"status":"OFFSET_ILLEGAL"}')
    assert transport.call("GET", PULL).endpoint == MASTER, (
        "the slave's word for what it lacks is not the broker's"
    )
    pair.answers[SLAVE] = Answer(200, {"X-LakeMQ-Status": "FOUND"}, b"arrow")
    assert [transport.call("GET", PULL).endpoint for _ in range(2)] == [SLAVE, MASTER], "it sends back"


def test_a_suggested_slave_that_is_away_or_unknown_leaves_the_master() -> None:
    pair = Pair()
    transport = pair.transport()
    pair.answers = {MASTER: Answer(200, {SUGGESTED: "1"}, FOUND)}
    assert transport.call("GET", PULL).endpoint == MASTER
    pair.raises[SLAVE] = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
    assert [transport.call("GET", PULL).endpoint for _ in range(2)] == [MASTER, MASTER]
    for said in ("7", "-1", "\u0661", "one", "99999999999999999999"):
        pair.answers[MASTER] = Answer(200, {SUGGESTED: said}, FOUND)
        assert [transport.call("GET", PULL).endpoint for _ in range(2)] == [MASTER, MASTER]
