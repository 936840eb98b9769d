"""Commands with a list of endpoints, against real name servers and brokers.

Contract: a command that takes one broker's address takes the list; what it shows names the broker.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakemq.cli.app import main
from lakemq.client import (
    Client,
)
from tests.support.name_servers import BrokersOfCluster
from tests.support.routed import bodies, made
from tests.support.waiting import wait_until


def test_commands_take_a_list(
    cluster: BrokersOfCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ("--endpoint", cluster.endpoint)
    assert main(["topic", "create", "listed", "--queues", "2", *endpoint]) == 0
    shown = capsys.readouterr().out
    assert "broker-a" in shown
    assert "broker-b" in shown
    cluster.wait_for_topic("listed", "broker-a", "broker-b")
    lines = tmp_path / "lines.ndjson"
    lines.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(40)))
    assert main(["produce", "listed", "--input", str(lines), "--batch", "10", *endpoint]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "20 at broker-a, 20 at broker-b"
    assert main(["tail", "listed", "--format", "json", *endpoint]) == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(json.loads(m["body"])["id"] for m in messages) == list(range(40))
    assert main(["group", "create", "listed", *endpoint]) == 0
    with Client(cluster.endpoint) as client:
        client.commit_offsets("listed", {("listed", 0): 1}, broker_name="broker-a")
        client.commit_offsets("listed", {("listed", 0): 2}, broker_name="broker-b")
    capsys.readouterr()
    assert main(["group", "offsets", "listed", "--format", "json", *endpoint]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["broker_name"], row["offset"]) for row in rows] == [("broker-a", 1), ("broker-b", 2)]
    assert (
        main(["group", "reset", "listed", "--topic", "listed", "--to", "earliest", "--execute", *endpoint])
        == 0
    )
    capsys.readouterr()
    main(["group", "offsets", "listed", "--format", "json", *endpoint])
    assert [row["offset"] for row in json.loads(capsys.readouterr().out)] == [0, 0, 0, 0]


def test_a_topic_is_made_where_a_broker_answers_and_the_error_names_the_other(
    cluster: BrokersOfCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ("--endpoint", cluster.endpoint)
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        assert main(["topic", "create", "half", *endpoint]) == 1
        said = capsys.readouterr().err
        assert "broker-b" in said
        assert "done on broker-a" in said
        with cluster.brokers["broker-a"].client() as one:
            assert one.topic("half").topic == "half"
    finally:
        b.start()
    wait_until(lambda: all("broker-b" in server.addresses() for server in cluster.name_servers))


def test_a_group_is_cloned_at_every_broker_or_at_none(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = made(cluster, client, "cloned"), ("--endpoint", cluster.endpoint)
    client.put_group("cloned")
    stands = {"broker-a": 1, "broker-b": 2}
    for name, at in stands.items():
        with cluster.brokers[name].client() as one:
            for _ in range(3):
                one.send(topic, "x", queue_id=0)
            wait_until(lambda one=one: one.queues(topic)[0].confirmed_offset == 3)  # type: ignore[misc]
            one.commit_offsets("cloned", {(topic, 0): at})
    b = cluster.brokers["broker-b"]
    b.kill()
    try:
        assert main(["group", "clone", "cloned", "of-two", "--execute", *endpoint]) == 1
        assert "broker-b" in capsys.readouterr().err
        with cluster.brokers["broker-a"].client() as one:
            assert "of-two" not in {group.group for group in one.groups()}
    finally:
        b.start()
    wait_until(lambda: all("broker-b" in server.addresses() for server in cluster.name_servers))
    assert main(["group", "clone", "cloned", "of-two", "--execute", "--format", "json", *endpoint]) == 0
    rows = json.loads(capsys.readouterr().out)["queues"]
    assert {row["broker_name"]: (row["to_offset"], row["lag"]) for row in rows} == {
        "broker-a": (1, 2),
        "broker-b": (2, 1),
    }
    for name, at in stands.items():
        assert client.group_offsets("of-two", broker_name=name) == {(topic, 0): at}


def test_a_group_that_a_driver_holds_is_deleted_in_its_name_at_one_broker(
    cluster: BrokersOfCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["group", "delete", "driven", "--yes", "--endpoint", cluster.endpoint]
    with Client(cluster.endpoint) as client:

        def having_it() -> list[str]:
            brokers = client.brokers().items()
            return sorted(name for name, one in brokers if any(g.group == "driven" for g in one.groups()))

        client.put_group("driven")
        lease = client.acquire_lease("driven", "driver", 60_000, broker_name="broker-b")
        epoch = ["--lease-epoch", str(lease.epoch)]
        assert main([*words, *epoch]) == 2
        assert "--broker broker-a" in capsys.readouterr().err
        assert having_it() == ["broker-a", "broker-b"]
        assert main([*words, "--broker", "broker-b"]) == 1
        assert "driven is held by driver" in capsys.readouterr().err
        assert main([*words, "--broker", "broker-b", *epoch]) == 0
        assert having_it() == ["broker-a"]
        assert main(words) == 0
        assert having_it() == []


def test_a_line_of_text_names_the_broker_of_a_message(
    cluster: BrokersOfCluster, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, endpoint = made(cluster, client, "named-brokers"), ("--endpoint", cluster.endpoint)
    assert main(["produce", topic, "--body", "x", "--key", "k", *endpoint]) == 0
    *_, name, place = capsys.readouterr().out.split()
    assert name in ("broker-a", "broker-b")
    wait_until(lambda: sum(len(bodies(broker, topic)) for broker in client.brokers().values()) == 1)
    assert main(["tail", topic, *endpoint]) == 0
    assert capsys.readouterr().out.split()[1:] == [name, place, "-", "k", "x"]
    wait_until(lambda: main(["message", "find", "--topic", topic, "--key", "k", *endpoint]) == 0)
    columns, found = (line.split() for line in capsys.readouterr().out.splitlines()[-2:])
    assert dict(zip(columns, found, strict=True))["broker_name"] == name


def test_a_topic_is_shown_before_name_servers_have_heard_of_it(
    cluster: BrokersOfCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was acknowledged is there at once, at the one broker that has it so far."""
    endpoint = ("--endpoint", cluster.endpoint)
    for number in range(3):
        assert main(["produce", f"fresh-{number}", "--body", "x", *endpoint]) == 0
        capsys.readouterr()
        assert main(["tail", f"fresh-{number}", *endpoint]) == 0
        shown = capsys.readouterr()
        assert shown.out.split()[-1:] == ["x"], number
        assert not shown.err


def test_a_topic_that_a_broker_lacks_is_told_of_and_made_there(
    cluster: BrokersOfCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster.brokers["broker-b"].client() as one:
        one.put_topic("half-there", read_queue_nums=1, write_queue_nums=1)
    cluster.wait_for_topic("half-there", "broker-b")
    endpoint = ("--endpoint", cluster.endpoint)
    assert main(["topic", "create", "half-there", *endpoint]) == 1
    assert "update changes it, and makes it at broker-a, where it is not" in capsys.readouterr().err
    assert main(["topic", "update", "half-there", *endpoint]) == 0
    assert main(["topic", "create", "half-there", *endpoint]) == 1
    assert capsys.readouterr().err.endswith("lakemq topic update changes it\n")


def test_lines_of_a_file_go_to_the_brokers_of_their_sharding_keys(
    cluster: BrokersOfCluster, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(cluster, client, "sharded-lines")
    lines = [{"body": f"{n % 8} {n}", **({"sharding_key": f"{n % 8}"} if n % 8 else {})} for n in range(80)]
    file = tmp_path / "lines.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["produce", topic, "--endpoint", cluster.endpoint, "--batch", "20", "--input", str(file)]
    assert main(command) == 0
    found: dict[str, set[tuple[str, int]]] = {}
    stored: list[str] = []
    for name, broker in client.brokers(topic).items():
        for queue in range(2):
            messages = [m.body.decode() for m in broker.pull(topic, queue, 0, max=1000).messages]
            stored += messages
            for key in {body.split()[0] for body in messages} - {"0"}:
                found.setdefault(key, set()).add((name, queue))
                numbers = [int(body.split()[1]) for body in messages if body.startswith(f"{key} ")]
                assert numbers == sorted(numbers), "in the order of the file"
    assert sorted(stored) == sorted(str(line["body"]) for line in lines)
    assert all(len(places) == 1 for places in found.values())
    assert len({name for places in found.values() for name, _ in places}) == 2
    lines[27] = {"body": "x", "sharding_key": "3", "delay_level": "soon"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(command) == 1
    assert "line 28" in capsys.readouterr().err
