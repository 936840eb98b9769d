"""The list of brokers of an ordered topic, and its changes, against real name servers and brokers.

Contract: a change of the list is shown before it is made, and reaches every broker or says where it did not;
a broker keeps it over restarts and promotions, and takes nothing that would break the order in silence.
"""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakemq.cli.app import main
from lakemq.cli.unconsumed import unconsumed
from lakemq.client import Client, InvalidRequest, Unavailable
from lakemq.client.order_change import order_topic
from tests.support.http import Http
from tests.support.name_servers import BrokersOfCluster, NameServer
from tests.support.ordered_topics import KEYS, forgotten, ordered, sent
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("all_there")


def test_a_change_of_the_list_is_shown_before_it_is_made(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ("--endpoint", cluster.endpoint)
    assert (
        main(["topic", "create", "changes", "--ordered", "--brokers", "broker-a", "--queues", "2", *endpoint])
        == 0
    )
    cluster.wait_for_topic("changes", "broker-a")
    assert client.topic("changes").order_conf is not None
    change = ["topic", "order", "changes", "--brokers", "broker-a,broker-b", *endpoint]
    capsys.readouterr()
    assert main(change) == 0
    shown = capsys.readouterr().out
    assert "about 50% of sharding keys would move to another queue" in shown
    assert "nothing was changed; --execute does it" in shown
    with cluster.brokers["broker-b"].client() as one, pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
        one.topic("changes")
    assert main([*change, "--execute"]) == 0
    assert "about 50% of sharding keys moved to another queue" in capsys.readouterr().out
    cluster.wait_for_topic("changes", "broker-a", "broker-b")
    confs = set()
    for broker in cluster.brokers.values():
        with broker.client() as one:
            confs.add(one.topic("changes").order_conf)
    assert len(confs) == 1
    with Client(cluster.endpoint) as fresh:
        wait_until(lambda: {sent(fresh, "changes", key) for key in KEYS} == {"broker-a", "broker-b"})
    assert main([*change, "--execute"]) == 0
    assert "move" not in capsys.readouterr().out, "the same list is the same list"
    assert main(["topic", "order", "changes", "--brokers", "broker-a,nobody", *endpoint]) == 1
    assert "no broker is known by the name nobody" in capsys.readouterr().err


def test_a_change_that_moves_keys_says_what_is_to_be_consumed_before_and_waits_for_it(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = ordered(cluster, client, "drains"), ("--endpoint", cluster.endpoint)
    places = [client.send(topic, "x", sharding_key=key) for key in KEYS]
    client.put_group("drains")
    mine = {name: [at for at in places if at.broker_name == name] for name in ("broker-a", "broker-b")}
    for name in mine:
        client.commit_offsets("drains", {(topic, 0): 0, (topic, 1): 0}, broker_name=name)
    change = ["topic", "order", topic, "--brokers", "broker-a", *endpoint]
    wait_until(lambda: sum(queue.max_offset for queue in client.broker("broker-b").queues(topic)) > 0)
    assert main(change) == 0
    shown = capsys.readouterr().out
    for name, there in mine.items():
        assert f"group drains has {len(there)} messages to consume at {name}" in shown
    assert main([*change, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)["unconsumed"]
    assert {(one["group"], one["broker_name"], one["messages"]) for one in said} == {
        ("drains", name, len(there)) for name, there in mine.items()
    }
    assert main([*change, "--wait", "1s", "--execute"]) == 1
    refused = capsys.readouterr().err
    assert "nothing was changed: after 1 s group drains has" in refused
    conf = client.topic(topic).order_conf
    assert conf is not None
    assert conf.brokers == "broker-a:2;broker-b:2"
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(main, [*change, "--wait", "60s", "--execute"])
        for name in mine:
            ends = {(topic, queue.queue_id): queue.max_offset for queue in client.broker(name).queues(topic)}
            assert not waiting.done(), "one broker's are not consumed yet"
            client.commit_offsets("drains", ends, broker_name=name)
        assert waiting.result(60) == 0
    conf = client.topic(topic).order_conf
    assert conf is not None
    assert conf.brokers == "broker-a:2"
    assert "no group has messages of it to consume" in capsys.readouterr().out


def test_what_a_group_never_came_to_is_to_be_consumed(cluster: BrokersOfCluster, client: Client) -> None:
    topic = ordered(cluster, client, "never-came-to")
    there: dict[str, int] = {}
    for key in KEYS:
        name = client.send(topic, "x", sharding_key=key).broker_name
        there[name] = there.get(name, 0) + 1
    client.put_group("half")
    ends = {(topic, queue.queue_id): queue.max_offset for queue in client.broker("broker-a").queues(topic)}
    client.commit_offsets("half", ends, broker_name="broker-a")
    (left,) = (one for one in unconsumed(client, topic) if one.group == "half")
    assert (left.broker_name, left.messages) == ("broker-b", there["broker-b"])


def test_a_topic_that_becomes_ordered_moves_no_key(cluster: BrokersOfCluster, client: Client) -> None:
    client.put_topic("becomes", read_queue_nums=2, write_queue_nums=2)
    cluster.wait_for_topic("becomes", "broker-a", "broker-b")
    before = {key: client.send("becomes", "x", sharding_key=key) for key in KEYS}
    change = client.order_topic("becomes")
    assert (change.before, change.moved, change.lacking) == (None, 0.0, ())
    with Client(cluster.endpoint) as fresh:
        for key, result in before.items():
            again = fresh.send("becomes", "x", sharding_key=key)
            assert (again.broker_name, again.queue_id) == (result.broker_name, result.queue_id)


def test_a_list_is_changed_only_where_all_its_brokers_answer_and_a_removed_one_may_be_away(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = ordered(cluster, client, "removed"), ("--endpoint", cluster.endpoint)
    a, b = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
    first = client.topic(topic).order_conf
    b.kill()
    try:
        with Client(cluster.endpoint, timeout_s=10, retries=0) as fresh:
            with pytest.raises(Unavailable, match=r"broker broker-b is away.*nothing was changed"):
                fresh.order_topic(topic, {"broker-a": 4, "broker-b": 4})
            with a.client() as one:
                assert one.topic(topic).order_conf == first
            changed = fresh.order_topic(topic, ["broker-a"])
        assert changed.lacking == ("broker-b",)
        assert changed.order_conf.brokers == "broker-a:2"
    finally:
        b.start()
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    for server in cluster.name_servers:  # a registration behind the change
        wait_until(lambda server=server: route_conf(server, topic) == changed.order_conf.brokers)  # type: ignore[misc]
    with Client(cluster.endpoint, timeout_s=5) as fresh:
        assert fresh.cluster_routes.routes.order_conf(topic) == changed.order_conf, "the newest list counts"
        assert {sent(fresh, topic, key) for key in KEYS} == {"broker-a"}
    assert main(["topic", "order", topic, *endpoint]) == 1
    assert "not yet" in capsys.readouterr().out
    assert main(["topic", "order", topic, "--execute", *endpoint]) == 0
    with b.client() as one:
        assert one.topic(topic).order_conf == changed.order_conf


@pytest.mark.parametrize("exists", [False, True])
def test_of_two_changes_at_the_same_time_one_is_made_at_all_brokers(
    cluster: BrokersOfCluster, client: Client, exists: bool
) -> None:
    topic = f"at-once-{exists}"
    if exists:
        client.put_topic(topic)

    def another_is_quicker() -> int:
        with Client(cluster.endpoint) as other:
            other.order_topic(topic, {"broker-a": 2, "broker-b": 2})
        return time.time_ns() // 1_000_000 + 1_000

    asked: Any = {"known": client.brokers(), "routes": None, "queues": None, "dry_run": False, "settings": {}}
    with pytest.raises(InvalidRequest, match=r"TOPIC_CONFLICT: .*came between; nothing was changed"):
        order_topic(topic, {"broker-a": 4, "broker-b": 4}, now_ms=another_is_quicker, **asked)
    confs = {broker.topic(topic).order_conf for broker in client.brokers().values()}
    assert [conf and conf.brokers for conf in confs] == ["broker-a:2;broker-b:2"]
    assert not client.order_topic(topic, {"broker-a": 4, "broker-b": 4}).lacking, "who knows of it may"


def test_an_ordered_topic_is_deleted_where_all_brokers_of_its_list_answer(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = ordered(cluster, client, "deleted"), ("--endpoint", cluster.endpoint)
    a, b = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
    b.kill()
    try:
        for known in (True, False):
            if not known:
                forgotten(cluster, "broker-b")
            assert main(["topic", "delete", topic, "--yes", *endpoint]) == 1
            said = capsys.readouterr().err
            assert "broker broker-b is away" in said
            assert "Nothing was changed" in said
        with a.client() as one:
            assert one.topic(topic).order_conf is not None
        change = ["topic", "order", topic, "--brokers", "broker-a", "--execute", *endpoint]
        assert main(change) == 1, "broker-b does not have it"
        for server in cluster.name_servers:
            wait_until(lambda server=server: route_conf(server, topic) == "broker-a:2")  # type: ignore[misc]
        with Client(cluster.endpoint, timeout_s=5) as fresh:
            fresh.delete_topic(topic)
        for server in cluster.name_servers:
            wait_until(lambda server=server: Http(server.url).get(f"/routes/{topic}").status == 404)  # type: ignore[misc]
    finally:
        b.start()
    cluster.wait_for_topic(topic, "broker-b")
    with Client(cluster.endpoint, timeout_s=5) as fresh:
        fresh.delete_topic(topic)  # what came back with b
    for server in cluster.name_servers:
        wait_until(lambda server=server: Http(server.url).get(f"/routes/{topic}").status == 404)  # type: ignore[misc]


def test_the_list_is_kept_over_restarts_and_by_a_promoted_slave(tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path) as own:
        master = own.master("broker-a")
        with Client(own.endpoint, timeout_s=5) as client:
            conf = client.order_topic("kept", {"broker-a": 3}).order_conf
        master.kill()
        master.start()
        with master.client() as one:
            assert one.topic("kept").order_conf == conf
        slave = own.slave("broker-a")
        own.master("broker-b")
        master.kill()
        with Client(own.endpoint, timeout_s=5, retries=0) as client:
            with pytest.raises(
                Unavailable, match=r"broker-a is away: only a slave of it answers.*nothing was"
            ):
                client.order_topic("kept", {"broker-a": 3, "broker-b": 3})
            with own.brokers["broker-b"].client() as one, pytest.raises(InvalidRequest, match="TOPIC_NOT"):
                one.topic("kept")
            assert client.order_topic("other", ["broker-b"]).lacking == ()
        with slave.client() as promoted:
            promoted.promote()
            assert promoted.topic("kept").order_conf == conf
        wait_until(lambda: route_conf(own.name_servers[0], "kept") == conf.brokers)


def test_a_broker_that_lost_its_store_is_shown_and_gets_the_list_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokersOfCluster(tmp_path) as own:
        own.master("broker-a")
        b = own.master("broker-b")
        endpoint = ("--endpoint", own.endpoint)
        with Client(own.endpoint, timeout_s=5) as client:
            conf = client.order_topic("lost", queues=2).order_conf
            of_b = next(key for key in KEYS if sent(client, "lost", key) == "broker-b")
        b.kill()
        shutil.rmtree(b.store_path)
        b.start()
        own.wait_for_topic("lost", "broker-a")
        wait_until(lambda: "broker-b" in own.name_servers[0].addresses())
        with Client(own.endpoint, timeout_s=5) as client:
            assert sent(client, "lost", of_b) == "broker-b"
            assert client.cluster_routes.routes.order_conf("lost") == conf
        assert main(["topic", "order", "lost", *endpoint]) == 1
        assert "not yet" in capsys.readouterr().out
        wait_until(lambda: main(["topic", "order", "lost", "--execute", *endpoint]) == 0)
        with b.client() as one:
            assert one.topic("lost").order_conf == conf
            assert one.topic("lost").write_queue_nums == 2


def route_conf(server: NameServer, topic: str) -> str | None:
    answer = Http(server.url).get(f"/routes/{topic}")
    return None if answer.status != 200 else (answer.json["order_conf"] or {}).get("brokers")


def test_a_broker_refuses_what_would_break_the_order_in_silence(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = ordered(cluster, client, "refuses")
    conf = client.topic(topic).order_conf
    assert conf is not None
    a = cluster.brokers["broker-a"]
    with a.client() as one:
        with pytest.raises(InvalidRequest, match=r"TOPIC_CONFLICT: .*its list gives broker broker-a 2 write"):
            one.put_topic(topic, read_queue_nums=4, write_queue_nums=4)
        older = type(conf)(conf.version - 1, "broker-a:2")
        with pytest.raises(InvalidRequest, match=r"TOPIC_CONFLICT: .*is not newer"):
            one.put_topic(topic, order_conf=older)
        with pytest.raises(InvalidRequest, match=r"TOPIC_CONFLICT: .*is not newer"):
            one.put_topic(topic, order_conf=type(conf)(conf.version, "broker-a:2"))
        for attributes in ({"order.version": "1"}, {**conf.attributes(), "order.brokers": "broker-a:2"}):
            with pytest.raises(InvalidRequest, match=r"ARGUMENT_ILLEGAL: .*order_conf says"):
                one.put_topic(topic, attributes=attributes)
        assert one.put_topic(topic, order_conf=conf).order_conf == conf, "again is no change"
        changed = one.put_topic(topic, attributes={"team": "billing"})
        assert changed.attributes == {"team": "billing", **conf.attributes()}
        assert one.put_topic(topic, attributes=changed.attributes).attributes == changed.attributes
        assert one.put_topic(topic, read_queue_nums=3).order_conf == conf
    route = Http(cluster.name_servers[0].url).get(f"/routes/{topic}").json
    assert route["order_conf"] == {"version": conf.version, "brokers": "broker-a:2;broker-b:2"}


def test_two_lists_of_one_version_are_an_error_for_sharding_keys_until_one_is_chosen(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = "conflicting"
    for name, brokers in (("broker-a", "broker-a:2"), ("broker-b", "broker-b:2")):
        answer = Http(cluster.brokers[name].endpoint).put(
            f"/topics/{topic}", {"order_conf": {"version": 7, "brokers": brokers}}
        )
        assert answer.status == 201
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    assert main(["topic", "order", topic, "--endpoint", cluster.endpoint]) == 1, "no broker has what counts"
    assert "brokers have other lists of the same version" in capsys.readouterr().out
    with Client(cluster.endpoint, timeout_s=5) as fresh:
        with pytest.raises(InvalidRequest, match=r"TOPIC_CONFLICT: .*over two lists of version 7") as refused:
            fresh.send(topic, "x", sharding_key="1")
        assert "broker-a has broker-a:2, broker-b has broker-b:2" in str(refused.value)
        assert fresh.send(topic, "keyless").status == "SEND_OK"
        chosen = fresh.order_topic(topic, ["broker-a", "broker-b"]).order_conf
        assert chosen.version > int(time.time() * 1000) - 60_000
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    with Client(cluster.endpoint, timeout_s=5) as fresh:
        wait_until(lambda: route_conf(cluster.name_servers[0], topic) == chosen.brokers)
        assert {sent(fresh, topic, key) for key in KEYS} == {"broker-a", "broker-b"}


def test_who_has_just_ordered_a_topic_goes_by_the_list_before_a_name_server_knows_of_it(
    client: Client,
) -> None:
    for number in range(3):
        topic = f"at-once-{number}"
        client.order_topic(topic, ["broker-a"], queues=2)
        assert {client.send(topic, key, sharding_key=key).broker_name for key in KEYS} == {"broker-a"}


def test_a_list_is_shown_while_a_broker_of_it_is_away(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = ordered(cluster, client, "shown-away")
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        assert main(["topic", "order", topic, "--endpoint", cluster.endpoint]) == 1
        said = capsys.readouterr()
        assert "broker-a" in said.out
        assert "away: " in said.out
        assert main(["topic", "order", topic, "--execute", "--endpoint", cluster.endpoint]) == 1
        assert "broker broker-b is away" in capsys.readouterr().err
    finally:
        b.start()


def test_a_broker_that_is_drained_is_not_in_the_list_of_a_topic_that_becomes_ordered(
    cluster: BrokersOfCluster, client: Client
) -> None:
    topic = "drained-first"
    client.put_topic(topic, write_queue_nums=2, read_queue_nums=2)
    cluster.wait_for_topic(topic, "broker-a", "broker-b")
    client.broker("broker-b").put_topic(topic, perm=4)
    change = client.order_topic(topic, dry_run=True)
    assert (change.order_conf.brokers, change.moved) == ("broker-a:2", 0.0)


def test_create_makes_no_other_list_of_a_topic_that_has_one(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    create = ["topic", "create", "only-b", "--endpoint", cluster.endpoint, "--brokers", "broker-b"]
    assert main(create) == 1
    assert "give --ordered too" in capsys.readouterr().err
    assert main([*create, "--ordered"]) == 0
    cluster.wait_for_topic("only-b", "broker-b")
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        forgotten(cluster, "broker-b")
        assert main([*create[:-1], "broker-a", "--ordered"]) == 1
        assert "lakemq topic order only-b changes the list" in capsys.readouterr().err
    finally:
        b.start()
    with pytest.raises(InvalidRequest, match="0"):
        client.order_topic("no-queues", {"broker-a": 0})


@pytest.mark.parametrize(
    ("contradiction", "code", "said"),
    [
        (["--brokers", "broker-a:2,broker-b:8", "--queues", "4"], 2, "--brokers says broker-a:2, broker-b:8"),
        (["--brokers", "broker-a:2,broker-b:8", "--write-queues", "2"], 2, "--brokers says broker-b:8, and"),
        (["--brokers", "broker-a:2,broker-b:8", "--read-queues", "4"], 1, "4 read queues are fewer than the"),
        (["--read-queues", "2", "--write-queues", "4"], 1, "write queues of broker-a:4, broker-b:4"),
    ],
)
def test_numbers_that_contradict_each_other_make_a_topic_nowhere(
    cluster: BrokersOfCluster,
    client: Client,
    capsys: pytest.CaptureFixture[str],
    contradiction: list[str],
    code: int,
    said: str,
) -> None:
    create = ["topic", "create", "contradicts", "--ordered", "--endpoint", cluster.endpoint]
    assert main([*create, *contradiction]) == code
    assert said in capsys.readouterr().err
    for broker in cluster.brokers.values():
        with broker.client() as one, pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
            one.topic("contradicts")
