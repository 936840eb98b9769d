"""A broker stays registered with every name server: what it tells them.

Contract: each name server hears of the broker at its start, of changes, of its end before it is over; one of
an older release is told what it knows. When it asks: test_registrar_times.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ha_replicator.http_question import HttpAnswer
from ha_replicator.nameserver import QueueData, RouteTables
from store_native.order_conf import OrderConf
from tests.support.registered_broker import ADDRESS, ONE, TWO, Asked, Described, Names, Scene, run

PLAIN = {"topic": "t", "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6}


def puts_and_deletes(asked: list[Asked]) -> list[tuple[str, str]]:
    return [(question.method, question.path) for question in asked]


def test_each_name_server_hears_of_the_broker_and_of_its_end() -> None:
    names = Names(ONE, TWO)

    async def scenario(scene: Scene) -> None:
        assert scene.registered() == [True, True]
        for url in (ONE, TWO):
            assert names.servers[url].tables.route("t") is not None

    run(names, scenario)
    assert names.addresses(ONE) == names.addresses(TWO) == {}


def test_a_registration_says_all_that_a_name_server_is_to_know() -> None:
    names, broker = Names(ONE), Described()
    broker.now = replace(
        broker.registration, replication_address="broker-a:10912", epoch=3, heartbeat_s=30.0, broker_id=0
    )

    async def scenario(scene: Scene) -> None:
        (asked,) = names.asked
        assert (asked.method, asked.path) == ("PUT", "/api/v1/brokers/broker-a/0")
        assert asked.content == {
            "cluster": "c",
            "address": ADDRESS,
            "data_version": "1",
            "topics": [PLAIN],
            "replication_address": "broker-a:10912",
            "epoch": 3,
            "store_id": "own",
            "heartbeat_s": 30.0,
        }

    run(names, scenario, broker=broker)


def test_only_a_slave_whose_log_parted_says_so() -> None:
    names, broker = Names(ONE), Described()
    broker.now = replace(broker.registration, broker_id=1)

    async def scenario(scene: Scene) -> None:
        assert "log_parted" not in names.asked[-1].content, "an older release may not know it"
        broker.now = replace(broker.registration, log_parted=True)
        await scene.change()
        assert names.asked[-1].content["log_parted"] is True
        assert scene.registered() == [True]

    run(names, scenario, broker=broker)


def test_a_name_and_a_store_with_any_letters_are_one_part_of_the_path() -> None:
    names, broker = Names(ONE), Described()
    broker.now = replace(broker.registration, broker_name="a/b ?é", store_id="s/&=")
    names.answers[ONE] = [HttpAnswer(200, {}), HttpAnswer(204, {})]

    async def scenario(scene: Scene) -> None:
        assert scene.registered() == [True]

    run(names, scenario, broker=broker)
    path = "/api/v1/brokers/a%2Fb%20%3F%C3%A9/0"
    assert puts_and_deletes(names.asked) == [("PUT", path), ("DELETE", f"{path}?store_id=s%2F%26%3D")]


def test_a_name_server_that_is_named_twice_is_asked_once() -> None:
    names = Names(ONE, TWO)

    async def scenario(scene: Scene) -> None:
        assert [asked.endpoint for asked in names.asked] == [TWO, ONE]
        assert [status.nameserver for status in scene.registrar.status()] == [TWO, ONE]

    run(names, scenario, nameservers=[TWO, ONE, TWO])


def test_nothing_is_known_of_a_name_server_before_it_answered() -> None:
    names = Names(ONE)
    names.silent[ONE] = asyncio.Event()

    async def scenario(scene: Scene) -> None:
        assert scene.registered() == [False]
        assert scene.failure() is None
        names.silent[ONE].set()
        await scene.advance()
        assert scene.registered() == [True]

    run(names, scenario)


def test_a_heartbeat_leaves_the_table_out_and_a_changed_table_replaces_it() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.change()
        scene.broker.now = replace(
            scene.broker.registration, data_version="2", topics={"u": QueueData(1, 1, 6)}
        )
        await scene.change()
        await scene.change()
        assert [asked.with_table for asked in names.asked] == [True, False, True, False]
        assert names.servers[ONE].tables.route("t") is None
        assert names.servers[ONE].tables.route("u") is not None

    run(names, scenario)


def test_a_broker_without_topics_says_so() -> None:
    names, broker = Names(ONE), Described()
    broker.now = replace(broker.registration, topics=None)

    async def scenario(scene: Scene) -> None:
        assert names.asked[0].content["topics"] == []

    run(names, scenario, broker=broker)


def test_a_name_server_that_came_back_empty_gets_the_table_in_the_same_round() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        names.restart(ONE)
        await scene.change()
        assert names.servers[ONE].tables.route("t") is not None
        assert [asked.with_table for asked in names.asked] == [True, False, True]

    run(names, scenario)


def test_a_table_is_not_sent_twice_to_who_wants_it_though_it_was_sent() -> None:
    names = Names(ONE)
    names.answers[ONE] = [HttpAnswer(200, {"topics_wanted": True})]

    async def scenario(scene: Scene) -> None:
        assert [asked.with_table for asked in names.asked] == [True]

    run(names, scenario)


def test_who_is_promoted_leaves_its_old_place_and_who_is_master_no_more_leaves() -> None:
    names, broker = Names(ONE), Described()
    broker.now = replace(broker.registration, broker_id=1)

    async def scenario(scene: Scene) -> None:
        assert names.addresses(ONE) == {1: ADDRESS}
        broker.now = replace(broker.registration, broker_id=0, epoch=5)
        await scene.change()
        assert names.addresses(ONE) == {0: ADDRESS}
        broker.now = None
        await scene.change()
        assert names.addresses(ONE) == {}
        assert scene.registered() == [False]
        assert scene.failure() is None
        before = len(names.asked)
        await scene.change()
        assert names.asked[before:] == [], "nobody asks for it: there is nothing to say"

    run(names, scenario, broker=broker)
    one, zero = "/api/v1/brokers/broker-a/1", "/api/v1/brokers/broker-a/0"
    assert puts_and_deletes(names.asked) == [
        ("PUT", one),
        ("DELETE", f"{one}?store_id=own"),
        ("PUT", zero),
        ("PUT", zero),  # with the table: a slave's does not count
        ("DELETE", f"{zero}?store_id=own"),
    ]


def test_who_is_master_again_brings_its_table_again() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        master = scene.broker.registration
        scene.broker.now = None
        await scene.change()
        scene.broker.now = master
        await scene.change()
        assert [(asked.method, asked.with_table) for asked in names.asked] == [
            ("PUT", True),
            ("DELETE", False),
            ("PUT", True),
        ]

    run(names, scenario)


def test_requests_of_one_moment_are_proved_with_times_that_grow_and_one_sender() -> None:
    names = Names(ONE, TWO)
    clock = iter([1000, 1000, 1000, 990, 2000, 1500])

    async def scenario(scene: Scene) -> None:
        names.answers = {ONE: [HttpAnswer(200, {})] * 9, TWO: [HttpAnswer(200, {})] * 9}
        await scene.change()

    names.answers = {ONE: [HttpAnswer(200, {})], TWO: [HttpAnswer(200, {})]}
    run(names, scenario, now_ms=lambda: next(clock))
    proofs = [
        (asked.authorization or "").removeprefix("LakeMQ-HMAC-SHA256 ").split(":") for asked in names.asked
    ]
    assert [int(stamp) for stamp, _, _ in proofs] == [1000, 1001, 1002, 1003, 2000, 2001]
    assert len({sender for _, sender, _ in proofs}) == 1
    assert len({digest for _, _, digest in proofs}) == 6


def test_each_run_of_a_broker_is_a_sender_of_its_own() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        assert scene.registered() == [True]

    run(names, scenario)
    run(names, scenario)
    senders = {(asked.authorization or "").split(":")[1] for asked in names.asked}
    assert len(senders) == 2
    assert {len(sender) for sender in senders} == {16}


def test_without_a_secret_nothing_is_proved() -> None:
    names = Names(ONE)
    names.answers[ONE] = [HttpAnswer(200, {}), HttpAnswer(204, {})]

    async def scenario(scene: Scene) -> None:
        assert scene.registered() == [True]

    run(names, scenario, secret=None)
    assert [asked.authorization for asked in names.asked] == [None, None]


def test_the_list_of_an_ordered_topic_is_told_and_of_others_nothing_that_older_name_servers_do_not_know() -> (
    None
):
    names, conf = Names(ONE), OrderConf.of(7, {"broker-a": 4, "broker-b": 4})

    async def scenario(scene: Scene) -> None:
        topics = {"t": QueueData(4, 4, 6), "u": QueueData(4, 4, 6, conf)}
        scene.broker.now = replace(scene.broker.registration, data_version="2", topics=topics)
        await scene.change()
        route = names.servers[ONE].tables.route("u")
        assert route is not None
        assert route.order_conf == conf

    run(names, scenario)
    ordered = {**PLAIN, "topic": "u", "order_conf": {"version": 7, "brokers": "broker-a:4;broker-b:4"}}
    tables = [asked.content["topics"] for asked in names.asked if asked.method == "PUT"]
    assert tables == [[PLAIN], [PLAIN, ordered]]


def order_conf_of(tables: RouteTables, topic: str) -> OrderConf | None:
    route = tables.route(topic)
    assert route is not None
    return route.order_conf


def with_ordered_topics() -> tuple[Described, QueueData]:
    broker, ordered = Described(), QueueData(4, 4, 6, OrderConf.of(7, {"broker-a": 4}))
    topics = {"t": ordered, "u": ordered, "v": QueueData(1, 1, 6)}
    broker.now = replace(broker.registration, topics=topics)
    return broker, ordered


def test_a_name_server_of_an_older_release_gets_all_but_the_lists_of_ordered_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names, (broker, ordered) = Names(ONE, TWO), with_ordered_topics()
    names.old = {ONE}

    async def scenario(scene: Scene) -> None:
        for topic in ("t", "u"):
            assert order_conf_of(names.servers[ONE].tables, topic) is None
            assert order_conf_of(names.servers[TWO].tables, topic) == ordered.order_conf
        assert order_conf_of(names.servers[ONE].tables, "v") is None
        assert scene.registered() == [True, True]
        assert [asked.method for asked in names.asked_of(ONE)] == ["PUT", "PUT"]
        assert [asked.content["topics"][2] for asked in names.asked_of(ONE)] == [
            {"topic": "v", "read_queue_nums": 1, "write_queue_nums": 1, "perm": 6}
        ] * 2

    run(names, scenario, broker=broker)
    assert caplog.text.count("name server hears of no ordered topics") == 1


def test_who_refuses_a_table_without_ordered_topics_too_refused_it(caplog: pytest.LogCaptureFixture) -> None:
    names, (broker, _) = Names(ONE), with_ordered_topics()
    names.answers[ONE] = [HttpAnswer(422, {"code": "A"}), HttpAnswer(422, {"code": "B"})]

    async def scenario(scene: Scene) -> None:
        assert scene.failure() == "it answered 422 'B': None"
        assert len(names.asked) == 2

    run(names, scenario, broker=broker)
    assert "ordered topics" not in caplog.text


@pytest.mark.parametrize(("status", "is_ordered"), [(422, False), (500, True)])
def test_what_is_refused_for_another_reason_is_not_asked_again(status: int, is_ordered: bool) -> None:
    names = Names(ONE)
    names.answers[ONE] = [HttpAnswer(status, {})]

    async def scenario(scene: Scene) -> None:
        assert scene.failure() == f"it answered {status} None: None"
        assert len(names.asked) == 1

    run(names, scenario, broker=with_ordered_topics()[0] if is_ordered else None)
