"""Who may register with a name server.

Contract: without a secret only brokers of this machine, with one only those that prove that they know it; a
proof is good once, for its request, within five minutes; a master of a higher epoch is never displaced by one
of a lower.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha_replicator.nameserver import BrokerRegistration, NameServer, QueueData, RouteTables, SignedRequest
from ha_replicator.nameserver.registration_proof import WINDOW_MS, RegistrationProof
from store_native.errors import InvalidRequest

SECRET = b"a secret of the cluster"
NOW_MS = 1_790_000_000_000
PATH = "/api/v1/brokers/broker-a/0"
BODY = b'{"cluster":"c"}'
TOPICS = {"t": QueueData(4, 4, 6)}


def registration(**other: object) -> BrokerRegistration:
    given = BrokerRegistration("c", "broker-a", 0, "http://broker-a:8090", "1", TOPICS)
    return replace(given, **other)  # type: ignore[arg-type]  # a field's


def signed(
    time_ms: int = NOW_MS, secret: bytes = SECRET, sender: str = "1a", **other: object
) -> SignedRequest:
    header = RegistrationProof(secret).authorization("PUT", PATH, BODY, time_ms, sender)
    request = SignedRequest("PUT", PATH, BODY, header, from_this_machine=False)
    return replace(request, **other)  # type: ignore[arg-type]  # a field's


def name_server(secret: bytes | None = SECRET) -> NameServer:
    return NameServer(RouteTables(), secret, lambda: NOW_MS)


def test_who_knows_the_secret_registers_from_anywhere() -> None:
    names = name_server()
    names.register(registration(), signed())
    route = names.tables.route("t")
    assert route is not None
    assert route.brokers[0].addresses == {0: "http://broker-a:8090"}


@pytest.mark.parametrize(
    "request_",
    [
        signed(authorization=""),
        signed(authorization="", from_this_machine=True),
        signed(secret=b"a secret of another cluster"),
        signed(method="DELETE"),
        signed(path="/api/v1/brokers/broker-b/0"),
        signed(body=BODY + b" "),
        signed(NOW_MS - WINDOW_MS - 1),
        signed(NOW_MS + WINDOW_MS + 1),
        signed(authorization="LakeMQ-HMAC-SHA256 now:1a:00"),
        signed(authorization=signed().authorization.replace(":1a:", ":1b:")),
        signed(sender=""),
        signed(authorization="LakeMQ-HMAC-SHA256 " + "9" * 5000 + ":1a:00"),
        signed(authorization=f"LakeMQ-HMAC-SHA256 {NOW_MS}:1a:\udcff"),
        signed(authorization=f"Bearer {NOW_MS}:00"),
    ],
)
def test_who_does_not_prove_it_is_refused(request_: SignedRequest) -> None:
    names = name_server()
    with pytest.raises(InvalidRequest, match="NO_PERMISSION"):
        names.register(registration(), request_)
    with pytest.raises(InvalidRequest, match="NO_PERMISSION"):
        names.unregister("broker-a", 0, request_)
    assert names.tables.brokers() == []


def test_a_proof_counts_once() -> None:
    names = name_server()
    names.register(registration(), signed(NOW_MS))
    names.tables.unregister("broker-a", 0)
    for again in (NOW_MS, NOW_MS - 1):
        with pytest.raises(InvalidRequest, match="a repeat"):
            names.register(registration(), signed(again))
    names.register(registration(), signed(NOW_MS + 1))


def test_a_sender_whose_clock_is_ahead_does_not_keep_others_out() -> None:
    names = name_server()
    names.register(registration(store_id="one"), signed(NOW_MS + WINDOW_MS - 1, sender="aa"))
    with pytest.raises(InvalidRequest, match="BROKER_CONFLICT"):
        names.register(registration(store_id="two"), signed(NOW_MS + WINDOW_MS, sender="bb"))
    names.register(registration(store_id="one"), signed(NOW_MS, sender="cc"))  # its clock was put right
    names.register(registration(store_id="two", epoch=2), signed(NOW_MS, sender="dd"))  # promoted


def test_who_lost_its_place_does_not_take_the_other_out() -> None:
    names = name_server()
    names.register(registration(store_id="old"), signed(NOW_MS, sender="aa"))
    names.register(registration(store_id="new", epoch=2), signed(NOW_MS, sender="bb"))
    with pytest.raises(InvalidRequest, match="BROKER_NOT_EXIST"):
        names.unregister("broker-a", 0, signed(NOW_MS + 1, sender="aa"), "old")
    assert names.tables.route("t") is not None
    names.unregister("broker-a", 0, signed(NOW_MS + 1, sender="bb"), "new")
    assert names.tables.route("t") is None


def test_without_a_secret_only_this_machines_brokers_register() -> None:
    names = name_server(None)
    with pytest.raises(InvalidRequest, match="from this machine only"):
        names.register(registration(), signed())
    names.register(registration(), signed(authorization="", from_this_machine=True))
    with pytest.raises(InvalidRequest, match="from this machine only"):
        names.unregister("broker-a", 0, signed())
    names.unregister("broker-a", 0, signed(from_this_machine=True))
    with pytest.raises(InvalidRequest, match="BROKER_NOT_EXIST"):
        names.unregister("broker-a", 0, signed(from_this_machine=True))


def test_nobody_takes_the_place_of_the_broker_it_sits_in() -> None:
    names = name_server()
    names.tables.register(registration(address="http://me:1"), pinned=True)
    with pytest.raises(InvalidRequest, match="is this broker"):
        names.register(registration(), signed())
    with pytest.raises(InvalidRequest, match="is this broker"):
        names.unregister("broker-a", 0, signed(NOW_MS + 1))
    assert names.tables.brokers()[0].addresses == {0: "http://me:1"}


def test_of_two_masters_the_one_of_the_higher_epoch_counts() -> None:
    now = 0.0
    tables = RouteTables(120.0, lambda: now)
    tables.register(registration(address="http://old:1", epoch=1))
    tables.register(registration(address="http://new:1", epoch=2))
    with pytest.raises(InvalidRequest, match="BROKER_CONFLICT"):
        tables.register(registration(address="http://old:1", epoch=1))
    assert tables.brokers()[0].addresses == {0: "http://new:1"}
    now = 121.0  # it is gone, and the other is all there is
    tables.register(registration(address="http://old:1", epoch=1))
    assert tables.brokers()[0].addresses == {0: "http://old:1"}


def test_a_second_broker_of_a_name_is_refused_while_the_first_lives() -> None:
    now = 0.0
    tables = RouteTables(120.0, lambda: now)
    tables.register(registration(address="http://first:1", store_id="one"))
    tables.register(registration(address="http://first:2", store_id="one"))
    for broker_id in (0, 1):
        tables.register(registration(broker_id=broker_id, store_id="one"))
        with pytest.raises(InvalidRequest, match=r"BROKER_CONFLICT.*is another broker"):
            tables.register(registration(broker_id=broker_id, address="http://second:1", store_id="two"))
    assert set(tables.brokers()[0].addresses.values()) == {"http://broker-a:8090"}
    tables.register(registration(address="http://second:1", store_id="two", epoch=3))  # it was promoted
    now = 121.0
    tables.register(registration(address="http://third:1", store_id="three", epoch=3))
    assert tables.brokers()[0].addresses[0] == "http://third:1"


def test_a_broker_is_late_by_its_own_heartbeats() -> None:
    now = 0.0
    tables = RouteTables(3.0, lambda: now)
    tables.register(registration(heartbeat_s=30.0))
    now = 89.0
    assert tables.expire() == []
    now = 91.0
    assert tables.expire() == [("broker-a", 0)]


def test_a_secret_is_no_short_word() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        name_server(b"short")
