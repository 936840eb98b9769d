"""The brokers of one name: a slave answers reads while its master does not; what it lacks is not known."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lakemq.client.broker_table import BrokerRoute
from lakemq.client.broker_transport import BrokerTransport
from lakemq.client.routes import Routes
from lakemq.client.transport import Answer, Transport
from store_native.errors import InvalidRequest, LakeMQError, Unavailable

MASTER, SLAVE = "http://master", "http://slave"


class Pair:
    """A master and a slave: what each raises, None to answer."""

    def __init__(self) -> None:
        self.raises: dict[str, LakeMQError | None] = {MASTER: None, SLAVE: None}

    def brokers(self, deadline: object = None) -> dict[str, BrokerRoute]:
        return {"broker-a": BrokerRoute("broker-a", MASTER, (SLAVE,))}

    def failed(self) -> None:
        pass

    def transport_to(self, address: str) -> Transport:
        class To:
            def call(to, method: str, path: str, **how: Any) -> Answer:
                error = self.raises[address]
                if error is not None:
                    raise error
                return Answer(200, {}, b"{}", address)

        return cast(Transport, To())

    def transport(self) -> BrokerTransport:
        routes = cast(Routes, self)
        return BrokerTransport("broker-a", routes, self.transport_to, timeout_s=1.0, retry_until=None)


def test_answers_of_slaves_are_counted() -> None:
    pair = Pair()
    transport = pair.transport()
    assert not transport.call("GET", "/x").from_slave
    assert transport.slave_answers == 0
    pair.raises[MASTER] = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")
    assert transport.call("GET", "/x").from_slave
    assert transport.slave_answers == 1


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
