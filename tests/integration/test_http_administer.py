"""Administer: topics, groups, offsets, leases, routes; durable when it answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from ingest_api.http.routes.brokers import is_loopback
from tests.support.broker_process import BrokerProcess
from tests.support.http import Http, Reply
from tests.support.waiting import wait_until


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Http:
    return Http(shared_broker.endpoint)


def test_a_topic_is_created_changed_and_deleted(http: Http) -> None:
    made = http.put("/topics/life", {"read_queue_nums": 2, "write_queue_nums": 2, "attributes": {"+a": "b"}})
    assert made.status == 201
    assert (made.json["topic"], made.json["read_queue_nums"], made.json["perm"]) == ("life", 2, 6)
    assert http.get("/topics/life").json == made.json
    again = http.put("/topics/life", {"read_queue_nums": 8, "write_queue_nums": 8})
    changed = again.json
    assert again.status == 200
    assert (changed["read_queue_nums"], changed["topic_id"]) == (8, made.json["topic_id"])
    assert len(http.get("/topics/life/queues").json) == 8
    assert "life" in {t["topic"] for t in http.pages("/topics", "topics")}
    assert http.call("DELETE", "/topics/life").status == 204
    http.get("/topics/life").problem(404, "TOPIC_NOT_EXIST")
    again = http.put("/topics/life", {}).json
    assert again["topic_id"] != made.json["topic_id"]


def test_a_change_that_strands_messages_needs_force(http: Http) -> None:
    http.put("/topics/shrink", {"read_queue_nums": 4, "write_queue_nums": 4})
    http.put("/topics/shrink", {"read_queue_nums": 2}).problem(409, "TOPIC_CONFLICT")
    assert http.put("/topics/shrink", {"write_queue_nums": 2}).status == 200
    assert http.put("/topics/shrink", {"read_queue_nums": 2}).status == 200
    assert http.put("/topics/shrink", {"read_queue_nums": 1, "force": True}).status == 200


def test_a_topic_without_write_permission_takes_nothing(http: Http) -> None:
    http.put("/topics/readonly", {"perm": 4})
    http.post("/topics/readonly/messages", {"body": "x"}).problem(403, "NO_PERMISSION")


def test_a_group_is_created_changed_and_deleted(http: Http) -> None:
    made = http.put("/groups/arrivals", {"retry_max_times": 2})
    assert made.status == 201
    assert (made.json["group"], made.json["retry_max_times"], made.json["consume_enable"]) == (
        "arrivals",
        2,
        True,
    )
    assert http.get("/topics/%25RETRY%25arrivals").json["read_queue_nums"] == 1
    changed = http.put("/groups/arrivals", {"consume_enable": False})
    assert (changed.status, changed.json["retry_max_times"]) == (200, 2)
    assert "arrivals" in {g["group"] for g in http.pages("/groups", "groups")}
    assert http.call("DELETE", "/groups/arrivals").status == 204
    http.get("/groups/arrivals").problem(404, "GROUP_NOT_EXIST")


def test_committed_offsets_and_settings_survive_sigkill(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    http = Http(broker.endpoint)
    http.put("/topics/t", {"read_queue_nums": 2, "write_queue_nums": 2})
    for queue_id in (0, 1):
        messages = [{"body": "x", "queue_id": queue_id}] * 10
        assert http.post("/topics/t/messages", {"messages": messages}).status == 200
    http.put("/groups/g", {"retry_max_times": 3})
    offsets = [{"topic": "t", "queue_id": 0, "offset": 5}, {"topic": "t", "queue_id": 1, "offset": 7}]
    assert http.put("/groups/g/offsets", {"offsets": offsets}).status == 200
    assert (
        http.put("/groups/g/offsets", {"offsets": [{"topic": "t", "queue_id": 1, "offset": 8}]}).status == 200
    )
    broker.kill()
    broker.start()
    kept = sorted((o["queue_id"], o["offset"]) for o in http.get("/groups/g/offsets").json["offsets"])
    assert kept == [(0, 5), (1, 8)]
    assert http.get("/groups/g").json["retry_max_times"] == 3
    assert http.get("/topics/t").json["read_queue_nums"] == 2


def filled(http: Http, topic: str, group: str) -> None:
    http.put(f"/topics/{topic}", {"read_queue_nums": 2, "write_queue_nums": 2})
    for queue_id, count in ((0, 10), (1, 4)):
        messages = [{"body": "x", "queue_id": queue_id} for _ in range(count)]
        http.post(f"/topics/{topic}/messages", {"messages": messages})
    http.put(f"/groups/{group}", {})
    http.settle()
    offsets = [{"topic": topic, "queue_id": 0, "offset": 6}]
    assert http.put(f"/groups/{group}/offsets", {"offsets": offsets}).status == 200


def test_a_preview_of_a_reset_changes_nothing_and_the_reset_does_what_it_said(http: Http) -> None:
    filled(http, "reset", "reset_group")
    ask = {"topic": "reset", "to": "earliest"}
    preview = http.post("/groups/reset_group/offsets/reset", {**ask, "dry_run": True})
    assert preview.status == 200
    assert preview.json["redelivered"] == 6
    assert preview.json["queues"][0] == {
        "topic": "reset",
        "queue_id": 0,
        "from_offset": 6,
        "to_offset": 0,
        "redelivered": 6,
        "skipped": 0,
    }
    assert preview.json["queues"][1]["from_offset"] is None
    assert [o["offset"] for o in http.get("/groups/reset_group/offsets").json["offsets"]] == [6]
    done = http.post("/groups/reset_group/offsets/reset", ask).json
    assert done == {**preview.json, "dry_run": False}
    assert {o["queue_id"]: o["offset"] for o in http.get("/groups/reset_group/offsets").json["offsets"]} == {
        0: 0,
        1: 0,
    }


def test_a_reset_goes_to_the_end_to_a_time_and_to_offsets(http: Http) -> None:
    filled(http, "reset2", "reset2_group")
    path = "/groups/reset2_group/offsets/reset"
    latest = http.post(path, {"topic": "reset2", "to": "latest", "dry_run": True}).json
    assert [(q["to_offset"], q["skipped"]) for q in latest["queues"]] == [(10, 4), (4, 0)]
    at_time = http.post(path, {"topic": "reset2", "timestamp": 0, "dry_run": True}).json
    assert [q["to_offset"] for q in at_time["queues"]] == [0, 0]
    named = {"topic": "reset2", "to": "timestamp", "timestamp": 0, "dry_run": True}
    assert http.post(path, named).json == at_time
    named = {"topic": "reset2", "to": "offsets", "offsets": {"0": 2}, "dry_run": True}
    assert [q["to_offset"] for q in http.post(path, named).json["queues"]] == [2]
    given = http.post(path, {"topic": "reset2", "offsets": {"0": 2}}).json
    assert [(q["queue_id"], q["redelivered"]) for q in given["queues"]] == [(0, 4)]
    assert [o["offset"] for o in http.get("/groups/reset2_group/offsets").json["offsets"]] == [2]


def test_an_impossible_reset_is_refused(http: Http) -> None:
    filled(http, "reset3", "reset3_group")
    path = "/groups/reset3_group/offsets/reset"
    http.post(path, {"topic": "reset3"}).problem(422, "ARGUMENT_ILLEGAL")
    http.post(path, {"topic": "reset3", "to": "earliest", "timestamp": 1}).problem(422, "ARGUMENT_ILLEGAL")
    http.post(path, {"topic": "reset3", "to": "middle"}).problem(422, "ARGUMENT_ILLEGAL")
    http.post(path, {"topic": "reset3", "to": "timestamp"}).problem(422, "ARGUMENT_ILLEGAL")
    http.post(path, {"topic": "reset3", "to": "offsets", "timestamp": 1}).problem(422, "ARGUMENT_ILLEGAL")
    both = {"topic": "reset3", "to": "timestamp", "timestamp": 1, "offsets": {"0": 1}}
    http.post(path, both).problem(422, "ARGUMENT_ILLEGAL")
    http.post(path, {"topic": "no_topic", "to": "latest"}).problem(404, "TOPIC_NOT_EXIST")
    http.post(path, {"topic": "reset3", "offsets": {"0": 99}}).problem(409, "OFFSET_ILLEGAL")
    http.post(path, {"topic": "reset3", "offsets": {"9": 0}}).problem(404, "QUEUE_NOT_EXIST")


def test_a_lease_has_one_owner_and_fences_the_old_one(http: Http) -> None:
    http.put("/groups/leased", {})
    http.post("/topics/leased_topic/messages", {"messages": [{"body": "x", "queue_id": 0}] * 3})
    first = http.post("/groups/leased/lease", {"owner": "driver-1", "ttl_ms": 300}).json
    assert first["expires_at"] > time.time() * 1000
    assert (
        http.post("/groups/leased/lease", {"owner": "driver-1", "ttl_ms": 300}).json["epoch"]
        == first["epoch"]
    )
    conflict = http.post("/groups/leased/lease", {"owner": "driver-2", "ttl_ms": 60_000})
    problem = conflict.problem(409, "LEASE_CONFLICT")
    assert problem["owner"] == "driver-1"
    assert problem["expires_at"] >= first["expires_at"]

    commit = {
        "offsets": [{"topic": "leased_topic", "queue_id": 0, "offset": 1}],
        "lease_epoch": first["epoch"],
    }
    assert http.put("/groups/leased/offsets", commit).status == 200

    asked: list[Reply] = []

    def acquired() -> bool:
        asked.append(http.post("/groups/leased/lease", {"owner": "driver-2", "ttl_ms": 60_000}))
        return asked[-1].status != 409

    wait_until(acquired)
    second = asked[-1]
    assert second.json["epoch"] > first["epoch"]
    commit["offsets"][0]["offset"] = 2
    http.put("/groups/leased/offsets", commit).problem(409, "LEASE_CONFLICT")
    assert [o["offset"] for o in http.get("/groups/leased/offsets").json["offsets"]] == [1]

    assert http.call("DELETE", "/groups/leased/lease?owner=driver-2").status == 204
    assert http.post("/groups/leased/lease", {"owner": "driver-3", "ttl_ms": 1000}).status == 200


def test_while_a_lease_is_held_nobody_moves_the_group_without_its_epoch(http: Http) -> None:
    filled(http, "held", "held_group")
    epoch = http.post("/groups/held_group/lease", {"owner": "driver", "ttl_ms": 60_000}).json["epoch"]
    commit = {"offsets": [{"topic": "held", "queue_id": 0, "offset": 7}]}
    reset = {"topic": "held", "to": "earliest"}
    for refused in (
        http.put("/groups/held_group/offsets", commit),
        http.post("/groups/held_group/offsets/reset", reset),
    ):
        problem = refused.problem(409, "LEASE_CONFLICT")
        assert (problem["owner"], problem["held_epoch"]) == ("driver", epoch)
        assert "driver" in problem["detail"]
    http.post("/groups/held_group/offsets/reset", {**reset, "lease_epoch": epoch + 1}).problem(
        409, "LEASE_CONFLICT"
    )
    assert [o["offset"] for o in http.get("/groups/held_group/offsets").json["offsets"]] == [6]
    # A preview moves nothing, and the holder's epoch does.
    assert http.post("/groups/held_group/offsets/reset", {**reset, "dry_run": True}).status == 200
    assert http.put("/groups/held_group/offsets", {**commit, "lease_epoch": epoch}).status == 200
    moved = http.post("/groups/held_group/offsets/reset", {**reset, "lease_epoch": epoch})
    assert moved.json["redelivered"] == 7
    http.call("DELETE", "/groups/held_group/lease?owner=driver")
    assert http.put("/groups/held_group/offsets", commit).status == 200


def test_while_a_lease_is_held_nobody_deletes_the_group_without_its_epoch(http: Http) -> None:
    filled(http, "holding", "kept_group")
    lease = {"owner": "driver", "ttl_ms": 60_000}
    epoch = http.post("/groups/kept_group/lease", lease).json["epoch"]
    problem = http.call("DELETE", "/groups/kept_group").problem(409, "LEASE_CONFLICT")
    assert (problem["owner"], problem["held_epoch"]) == ("driver", epoch)
    assert "held by driver" in problem["detail"]
    http.call("DELETE", f"/groups/kept_group?lease_epoch={epoch + 1}").problem(409, "LEASE_CONFLICT")
    # It stays with its offsets and its holder, which goes on.
    assert [o["offset"] for o in http.get("/groups/kept_group/offsets").json["offsets"]] == [6]
    assert http.post("/groups/kept_group/lease", lease).json["epoch"] == epoch
    http.call("DELETE", "/groups/nobody_has_it").problem(404, "GROUP_NOT_EXIST")

    assert http.call("DELETE", f"/groups/kept_group?lease_epoch={epoch}").status == 204
    http.get("/groups/kept_group").problem(404, "GROUP_NOT_EXIST")
    http.put("/groups/kept_group", {})
    assert http.post("/groups/kept_group/lease", {**lease, "owner": "next"}).json["epoch"] > epoch
    assert http.call("DELETE", "/groups/kept_group/lease?owner=next").status == 204
    assert http.call("DELETE", "/groups/kept_group").status == 204


def test_a_reset_of_a_mistyped_group_creates_nothing(http: Http) -> None:
    filled(http, "typo", "typo_group")
    for dry_run in (True, False):
        reset = {"topic": "typo", "to": "earliest", "dry_run": dry_run}
        http.post("/groups/tpyo_group/offsets/reset", reset).problem(404, "GROUP_NOT_EXIST")
    http.get("/groups/tpyo_group").problem(404, "GROUP_NOT_EXIST")
    assert "tpyo_group" not in {g["group"] for g in http.pages("/groups", "groups")}


def test_lists_are_paged_and_each_entry_comes_once(http: Http) -> None:
    names = [f"paged-{n:02}" for n in range(7)]
    for name in names:
        http.put(f"/topics/{name}", {"read_queue_nums": 1, "write_queue_nums": 1})
        http.put(f"/groups/{name}", {})
    whole = http.get("/topics").json
    assert whole["next"] is None
    for limit in (1, 3, 1000):
        topics = http.pages("/topics", "topics", limit)
        assert topics == whole["topics"], limit
        groups = [g["group"] for g in http.pages("/groups", "groups", limit)]
        assert [group for group in groups if group.startswith("paged-")] == names
        assert groups == sorted(set(groups))
    offsets = [{"topic": name, "queue_id": 0, "offset": 0} for name in names]
    http.put("/groups/paged-00/offsets", {"offsets": offsets})
    assert http.pages("/groups/paged-00/offsets", "offsets", 2) == offsets
    for parameters in ("limit=0", "limit=10001", "limit=x"):
        http.get(f"/topics?{parameters}").problem(422, "ARGUMENT_ILLEGAL")
    http.get("/groups/paged-00/offsets?next=nonsense").problem(422, "ARGUMENT_ILLEGAL")


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/topics?limt=5", "limt"),
        ("GET", "/topics?limit=5&limit=6", "limit"),
        ("DELETE", "/topics/kept?force=true", "force"),
        ("PUT", "/groups/unmade?dry_run=true", "dry_run"),
        ("GET", "/topics/kept/queues?max=1", "max"),
        ("GET", "/topics/kept/messages?key=k&from=1", "from"),
        ("GET", "/cluster?x=", "x"),
    ],
)
def test_a_parameter_nobody_reads_is_refused(http: Http, method: str, path: str, name: str) -> None:
    http.put("/topics/kept", {})
    body = b"{}" if method == "PUT" else None
    problem = http.call(method, path, body, {"Content-Type": "application/json"}).problem(
        422, "ARGUMENT_ILLEGAL"
    )
    assert problem["errors"][0]["parameter"] == name
    assert http.get("/topics/kept").status == 200
    http.get("/groups/unmade").problem(404, "GROUP_NOT_EXIST")


def test_a_fenced_driver_stays_fenced_after_a_restart(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    http = Http(broker.endpoint)
    http.put("/groups/g", {})
    http.post("/topics/t/messages", {"messages": [{"body": "x", "queue_id": 0}] * 3})
    old = http.post("/groups/g/lease", {"owner": "old", "ttl_ms": 60_000}).json["epoch"]
    http.call("DELETE", "/groups/g/lease?owner=old")
    new = http.post("/groups/g/lease", {"owner": "new", "ttl_ms": 60_000}).json["epoch"]
    broker.kill()
    broker.start()
    commit = {"offsets": [{"topic": "t", "queue_id": 0, "offset": 1}]}
    http.put("/groups/g/offsets", {**commit, "lease_epoch": old}).problem(409, "LEASE_CONFLICT")
    renewed = http.post("/groups/g/lease", {"owner": "new", "ttl_ms": 60_000}).json["epoch"]
    assert renewed >= new
    assert http.put("/groups/g/offsets", {**commit, "lease_epoch": renewed}).status == 200
    http.put("/groups/g/offsets", {**commit, "lease_epoch": old}).problem(409, "LEASE_CONFLICT")


def test_an_offset_beyond_the_end_is_refused(http: Http) -> None:
    filled(http, "beyond", "beyond_group")
    commit = {"offsets": [{"topic": "beyond", "queue_id": 0, "offset": 11}]}
    http.put("/groups/beyond_group/offsets", commit).problem(409, "OFFSET_ILLEGAL")
    commit = {"offsets": [{"topic": "no_topic", "queue_id": 0, "offset": 0}]}
    http.put("/groups/beyond_group/offsets", commit).problem(404, "TOPIC_NOT_EXIST")
    assert [o["offset"] for o in http.get("/groups/beyond_group/offsets").json["offsets"]] == [6]


def test_a_route_names_this_broker_also_for_topics_made_by_a_send(
    http: Http, shared_broker: BrokerProcess
) -> None:
    http.post("/topics/routed/messages", {"body": "x"})
    http.settle()
    assert http.get("/routes/routed").json == {
        "queues": [
            {
                "broker_name": "broker-a",
                "read_queue_nums": 4,
                "write_queue_nums": 4,
                "perm": 6,
                "order_conf": None,
            }
        ],
        "order_conf": None,
        "brokers": [
            {
                "cluster": "DefaultCluster",
                "broker_name": "broker-a",
                "addresses": {"0": shared_broker.endpoint},
                "epoch": 1,
            }
        ],
    }


def test_an_ordered_topic_is_made_again_with_a_newer_list_only(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    http = Http(broker.endpoint)

    def order(version: int, queues: int = 4) -> Reply:
        conf = {"version": version, "brokers": f"{broker_name}:{queues}"}
        return http.put("/topics/orders", {"order_conf": conf})

    broker_name = http.get("/cluster").json["broker_name"]
    assert order(1000).status == 201
    detail = order(500).problem(409, "TOPIC_CONFLICT")["detail"]
    assert "(version 1000)" in detail
    assert "(version 500) is not newer" in detail
    assert http.call("DELETE", "/topics/orders").status == 204
    for _ in range(2):
        for version, queues in ((500, 4), (1000, 5)):
            problem = order(version, queues).problem(409, "TOPIC_CONFLICT")
            assert f"{broker_name}:4 (version 1000) before it was deleted" in problem["detail"]
            assert f"{broker_name}:{queues} (version {version}) is not newer" in problem["detail"]
            assert problem["order_conf"] == {"version": 1000, "brokers": f"{broker_name}:4"}
        broker.kill()
        broker.start()
    assert http.get("/topics/orders").status == 404, "a refusal made nothing"
    assert order(1001).status == 201


def test_another_broker_registers_and_leaves(http: Http) -> None:
    registration = {
        "cluster": "DefaultCluster",
        "address": "http://10.0.0.2:8090",
        "data_version": "1",
        "topics": [{"topic": "elsewhere", "read_queue_nums": 1, "write_queue_nums": 1, "perm": 6}],
    }
    assert http.put("/brokers/broker-b/0", registration).json["topics_wanted"] is False
    assert [q["broker_name"] for q in http.get("/routes/elsewhere").json["queues"]] == ["broker-b"]
    assert {b["broker_name"] for b in http.get("/cluster").json["brokers"]} == {"broker-a", "broker-b"}
    assert http.call("DELETE", "/brokers/broker-b/0").status == 204
    http.get("/routes/elsewhere").problem(404, "TOPIC_NOT_EXIST")


def test_nobody_takes_the_place_of_the_broker_itself(http: Http) -> None:
    registration = {"cluster": "c", "address": "http://10.0.0.2:8090", "data_version": "1"}
    http.put("/brokers/broker-a/0", registration).problem(403, "NO_PERMISSION")
    http.call("DELETE", "/brokers/broker-a/0").problem(403, "NO_PERMISSION")


def test_nobody_registers_from_another_machine(start_broker: Callable[..., BrokerProcess]) -> None:
    own = address_of_this_machine()
    if own is None:
        pytest.skip("this machine has no address but loopback")
    broker = start_broker(arguments=("--host", "0.0.0.0", "--insecure"))
    near, far = Http(broker.endpoint), Http(f"http://{own}:{broker.port}")
    registration = {"cluster": "c", "address": "http://10.0.0.2:8090", "data_version": "1"}
    problem = far.put("/brokers/broker-b/0", registration).problem(403, "NO_PERMISSION")
    assert problem["client"] == own
    assert near.put("/brokers/broker-b/0", registration).status == 200
    far.call("DELETE", "/brokers/broker-b/0").problem(403, "NO_PERMISSION")
    assert {b["broker_name"] for b in near.get("/cluster").json["brokers"]} == {"broker-a", "broker-b"}


def address_of_this_machine() -> str | None:
    """Returns an address that is not loopback; connecting a UDP socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        own = str(probe.getsockname()[0])
    return None if own.startswith("127.") else own


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_loopback_is_recognised_in_every_form_a_socket_gives(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_the_cluster_says_who_this_is(http: Http) -> None:
    cluster = http.get("/cluster").json
    assert (cluster["cluster"], cluster["broker_name"], cluster["broker_id"]) == (
        "DefaultCluster",
        "broker-a",
        0,
    )
    assert cluster["store_id"]
    assert cluster["delay_levels_ms"][:4] == [1_000, 5_000, 10_000, 30_000]
    assert len(cluster["delay_levels_ms"]) == 18


@pytest.mark.parametrize(
    "attributes",
    [
        {"a\nb": "1"},
        {"a": "\x1b[31m"},
        {"": "1"},
        {"a" * 129: "1"},
        {"a": "1" * 1025},
        {str(n): "1" for n in range(65)},
    ],
)
def test_attributes_have_bounds(http: Http, attributes: dict[str, str]) -> None:
    refused = http.put("/topics/bounded", {"attributes": attributes})
    assert refused.status in (400, 422), refused.body
    http.get("/topics/bounded").problem(404, "TOPIC_NOT_EXIST")
    taken = {"名称": "值", **{str(n): "1" * 1024 for n in range(63)}}
    assert http.put("/topics/bounded-well", {"attributes": taken}).status in (200, 201)
    assert http.get("/topics/bounded-well").json["attributes"] == taken
