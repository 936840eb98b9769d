"""A broker stays registered with every name server.

Contract: each name server hears of the broker at its start, of changes at once, of its end before it is over;
one that is down or refuses costs the others nothing, and receives all again when it is back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from ha_replicator.http_question import HttpAnswer
from ha_replicator.nameserver import (
    BrokerRegistration,
    NameServer,
    QueueData,
    Registrar,
    RouteTables,
    SignedRequest,
)
from ha_replicator.nameserver.registrar import FIRST_PAUSE_S, LEAST_BETWEEN_S
from store_native.errors import LakeMQError
from store_native.order_conf import OrderConf
from tests.support.waiting import wait_until_async

SECRET = b"a secret of the cluster"
ONE, TWO = "http://one:9876", "http://two:9876"


class Names:
    """Name servers that are asked without a socket; one that is down raises."""

    def __init__(self, *urls: str) -> None:
        self.servers = {url: NameServer(RouteTables(), SECRET) for url in urls}
        self.down: set[str] = set()
        self.asked: list[tuple[str, str, bool]] = []
        self.tables: list[list[dict[str, Any]]] = []
        self.old: set[str] = set()

    def restart(self, url: str) -> None:
        self.servers[url] = NameServer(RouteTables(), SECRET)

    def addresses(self, url: str) -> dict[int, str]:
        return {k: v for data in self.servers[url].tables.brokers() for k, v in data.addresses.items()}

    async def ask(
        self, endpoint: str, path: str, *, method: str, body: bytes, headers: dict[str, str]
    ) -> HttpAnswer:
        content: dict[str, Any] = json.loads(body) if body else {}
        self.asked.append((endpoint, method, content.get("topics") is not None))
        if endpoint in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        request = SignedRequest(method, path, body, headers.get("Authorization", ""), from_this_machine=False)
        place, _, query = path.partition("?store_id=")
        *_, name, broker_id = place.split("/")
        try:
            if method == "DELETE":
                self.servers[endpoint].unregister(name, int(broker_id), request, query)
                return HttpAnswer(204, {})
            topics = content.pop("topics")
            if endpoint in self.old and any("order_conf" in topic for topic in topics or ()):
                return HttpAnswer(422, {"code": "ARGUMENT_ILLEGAL", "detail": "/topics/1/order_conf: extra"})
            self.tables += [] if topics is None else [[dict(t) for t in topics]]
            table = None if topics is None else {t.pop("topic"): queue_data(t) for t in topics}
            given = BrokerRegistration(broker_name=name, broker_id=int(broker_id), topics=table, **content)
            answer = self.servers[endpoint].register(given, request)
        except LakeMQError as error:
            return HttpAnswer(403, {"code": error.code, "detail": error.detail, **error.context})
        return HttpAnswer(200, {"topics_wanted": answer.topics_wanted})


def queue_data(said: dict[str, Any]) -> QueueData:
    conf = said.pop("order_conf", None)
    return QueueData(**said, order_conf=None if conf is None else OrderConf(**conf))


class Described:
    """A broker that says what it is."""

    def __init__(self) -> None:
        self.now: BrokerRegistration | None = BrokerRegistration(
            "c", "broker-a", 0, "http://broker-a:8090", "1", {"t": QueueData(4, 4, 6)}, store_id="own"
        )

    async def __call__(self) -> BrokerRegistration | None:
        return self.now


def run(
    names: Names,
    scenario: Callable[[Registrar, Described], Awaitable[None]],
    *,
    secret: bytes | None = SECRET,
    on_epoch: Callable[[int], None] = lambda epoch: None,
    every_s: float = 3_600.0,
    first_pause_s: float = FIRST_PAUSE_S,
    least_between_s: float = 0.02,
) -> None:
    async def main() -> None:
        broker = Described()
        registrar = Registrar(
            list(names.servers),
            broker,
            secret,
            question=names.ask,
            on_epoch=on_epoch,
            every_s=every_s,
            first_pause_s=first_pause_s,
            least_between_s=least_between_s,
        )
        registrar.start()
        try:
            await asyncio.wait_for(scenario(registrar, broker), 60)
        finally:
            await registrar.stop()

    asyncio.run(main())


def registered(registrar: Registrar) -> list[bool]:
    return [status.registered for status in registrar.status()]


def test_each_name_server_hears_of_the_broker_and_of_its_end() -> None:
    names = Names(ONE, TWO)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        await wait_until_async(lambda: registered(registrar) == [True, True])
        for url in (ONE, TWO):
            assert names.servers[url].tables.route("t") is not None

    run(names, scenario)
    assert names.addresses(ONE) == names.addresses(TWO) == {}


def test_a_name_server_that_is_down_costs_the_other_nothing_and_receives_all_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Names(ONE, TWO)
    names.down.add(ONE)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        await wait_until_async(lambda: registered(registrar) == [False, True])
        await wait_until_async(lambda: registrar.status()[0].failure == "Connection refused")
        names.down.clear()
        await wait_until_async(lambda: registered(registrar) == [True, True])
        assert names.servers[ONE].tables.route("t") is not None

    run(names, scenario, every_s=0.02, first_pause_s=0.01)
    lost = [record for record in caplog.records if "not registered" in record.getMessage()]
    assert len(lost) == 1, "one line, not one for each try"


def test_a_change_is_registered_at_once_and_a_heartbeat_leaves_the_table_out() -> None:
    names = Names(ONE)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        await wait_until_async(lambda: registered(registrar) == [True])
        assert broker.now is not None
        broker.now = replace(broker.now, data_version="2", topics={"u": QueueData(1, 1, 6)})
        registrar.changed()
        await wait_until_async(lambda: names.servers[ONE].tables.route("u") is not None)
        assert names.servers[ONE].tables.route("t") is None
        before = len(names.asked)
        registrar.changed()
        await wait_until_async(lambda: len(names.asked) > before)
        assert names.asked[before:] == [(ONE, "PUT", False)]

    run(names, scenario, least_between_s=LEAST_BETWEEN_S)


def test_a_name_server_that_came_back_empty_asks_for_the_table() -> None:
    names = Names(ONE)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        await wait_until_async(lambda: registered(registrar) == [True])
        names.restart(ONE)
        registrar.changed()
        await wait_until_async(lambda: names.servers[ONE].tables.route("t") is not None)

    run(names, scenario)


def test_who_is_promoted_leaves_its_old_place_and_who_is_master_no_more_leaves() -> None:
    names = Names(ONE)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        assert broker.now is not None
        broker.now = replace(broker.now, broker_id=1)
        registrar.changed()
        await wait_until_async(lambda: names.addresses(ONE) == {1: "http://broker-a:8090"})
        broker.now = replace(broker.now, broker_id=0, epoch=5)
        registrar.changed()
        await wait_until_async(lambda: names.addresses(ONE) == {0: "http://broker-a:8090"})
        broker.now = None
        registrar.changed()
        await wait_until_async(lambda: names.addresses(ONE) == {})

    run(names, scenario)


def test_a_broker_whose_place_is_anothers_does_not_take_it_out_at_its_stop() -> None:
    names = Names(ONE)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        assert broker.now is not None
        await wait_until_async(lambda: registered(registrar) == [True])
        promoted = replace(broker.now, store_id="another", epoch=9, address="http://promoted:1")
        names.servers[ONE].tables.register(promoted)
        registrar.changed()
        await wait_until_async(lambda: "BROKER_CONFLICT" in (registrar.status()[0].failure or ""))

    epochs: list[int] = []
    run(names, scenario, on_epoch=epochs.append)
    assert names.addresses(ONE) == {0: "http://promoted:1"}
    assert epochs == [9], "the broker hears that it is the master no more"


@pytest.mark.parametrize(("epoch", "heard"), [(1 << 20, [1 << 20]), ((1 << 20) + 1, [])])
def test_an_epoch_out_of_reach_is_not_believed(epoch: int, heard: list[int]) -> None:
    names = Names(ONE)
    epochs: list[int] = []

    async def scenario(registrar: Registrar, broker: Described) -> None:
        assert broker.now is not None
        names.servers[ONE].tables.register(replace(broker.now, store_id="another", epoch=epoch))
        registrar.changed()
        await wait_until_async(lambda: "BROKER_CONFLICT" in (registrar.status()[0].failure or ""))

    run(names, scenario, on_epoch=epochs.append)
    assert epochs[:1] == heard


def test_a_refusal_is_said_with_its_reason() -> None:
    names = Names(ONE)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        await wait_until_async(lambda: registrar.status()[0].failure is not None)
        failure = registrar.status()[0].failure or ""
        assert "NO_PERMISSION" in failure
        assert "secret" in failure
        assert registered(registrar) == [False]

    run(names, scenario, secret=b"a secret of another cluster")


def test_a_stop_waits_for_no_name_server_that_is_down() -> None:
    names = Names(ONE, TWO)

    async def scenario(registrar: Registrar, broker: Described) -> None:
        await wait_until_async(lambda: registered(registrar) == [True, True])
        names.down.add(TWO)

    run(names, scenario)
    assert names.addresses(ONE) == {}
    assert names.addresses(TWO) == {0: "http://broker-a:8090"}, "it forgets by itself"


def test_the_list_of_an_ordered_topic_is_told_and_of_others_nothing_that_older_name_servers_do_not_know() -> (
    None
):
    names, conf = Names(ONE), OrderConf.of(7, {"broker-a": 4, "broker-b": 4})

    async def scenario(registrar: Registrar, broker: Described) -> None:
        await wait_until_async(lambda: registered(registrar) == [True])
        assert broker.now is not None
        topics = {"t": QueueData(4, 4, 6), "u": QueueData(4, 4, 6, conf)}
        broker.now = replace(broker.now, data_version="2", topics=topics)
        registrar.changed()
        await wait_until_async(lambda: names.servers[ONE].tables.route("u") is not None)
        route = names.servers[ONE].tables.route("u")
        assert route is not None
        assert route.order_conf == conf

    run(names, scenario)
    plain = {"topic": "t", "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6}
    ordered = {**plain, "topic": "u", "order_conf": {"version": 7, "brokers": "broker-a:4;broker-b:4"}}
    assert names.tables == [[plain], [plain, ordered]]


def test_a_name_server_of_an_older_release_gets_all_but_the_lists_of_ordered_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Names(ONE, TWO)
    names.old = {ONE}
    ordered = QueueData(4, 4, 6, OrderConf.of(7, {"broker-a": 4}))

    async def scenario(registrar: Registrar, broker: Described) -> None:
        assert broker.now is not None
        tables = {"t": ordered, "u": ordered, "v": QueueData(1, 1, 6)}
        broker.now = replace(broker.now, data_version="2", topics=tables)
        registrar.changed()
        await wait_until_async(lambda: names.servers[ONE].tables.route("v") is not None)
        await wait_until_async(lambda: names.servers[TWO].tables.route("v") is not None)
        for url, conf in ((ONE, None), (TWO, ordered.order_conf)):
            for topic in ("t", "u"):
                route = names.servers[url].tables.route(topic)
                assert route is not None
                assert route.order_conf == conf
        assert all(status.registered for status in registrar.status())

    run(names, scenario)
    assert "name server hears of no ordered topics" in caplog.text
