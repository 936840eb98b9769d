"""A sink over several brokers: a chunk always goes to the same one, and rows to their sharding key's."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from lakemq.client import BatchResult, Client
from store_native.errors import InvalidRequest, LakeMQError, Unavailable
from store_native.order_conf import OrderConf
from store_native.sharding import in_order, of_sharding_key
from structured_streaming.options import parse_write
from structured_streaming.sink.fixed_brokers import FILE, with_brokers
from structured_streaming.sink.sender import send_all

BROKERS = ("broker-a", "broker-b", "broker-c")


class Cluster:
    """Stores what each broker gets, by key; who is ``away`` gets nothing."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.stored: dict[tuple[str, str], list[str]] = {}
        self.conf: OrderConf | None = None
        self.brokers_conf: OrderConf | None = None
        self.cluster_routes = self

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        """Has nothing to close."""

    def order_conf(self, topic: str) -> OrderConf | None:
        return self.conf

    def learned(self, topic: str, error: LakeMQError, went_by: OrderConf | None) -> bool:
        newer = error.code == "WRONG_BROKER" and self.conf != error.context["order_conf"]
        self.conf = error.context["order_conf"] if newer else self.conf
        return newer

    def broker(self, name: str) -> Any:
        cluster = self

        class Broker:
            def send_arrow(
                self, topic: str, rows: pa.Table, *, idempotency_key: str, order_version: int | None
            ) -> BatchResult:
                if name in cluster.away:
                    raise Unavailable("SERVICE_NOT_AVAILABLE", f"broker {name}: no connection")
                if cluster.brokers_conf is not None and (order_version or 0) < cluster.brokers_conf.version:
                    raise InvalidRequest("WRONG_BROKER", f"not {name}'s", order_conf=cluster.brokers_conf)
                known = (name, idempotency_key) in cluster.stored
                cluster.stored[name, idempotency_key] = rows.column("body").to_pylist()
                return BatchResult("SEND_OK", rows.num_rows, (), known)

        return Broker()


def send(cluster: Cluster, rows: pa.Table, **given: str) -> int:
    """Sends a task's rows; returns how many of them were duplicates."""
    options = parse_write(
        {"endpoint": "http://n", "topic": "t", "rowsPerRequest": "5", "brokers": ",".join(BROKERS)} | given
    )
    options = replace(options, retry_timeout_ms=1)
    return send_all(options, "spark/q/7/0", iter(rows.to_batches()), cast(Client, cluster)).duplicate_rows


def test_a_task_that_runs_again_sends_the_same_to_the_same_brokers() -> None:
    rows = pa.table({"body": [f"{n}" for n in range(100)]})
    cluster = Cluster()
    assert send(cluster, rows) == 0
    assert send(cluster, rows) == 100
    assert sorted(body for bodies in cluster.stored.values() for body in bodies) == sorted(
        rows.column("body").to_pylist()
    )
    chunks = Counter(name for name, _ in cluster.stored)
    assert set(chunks) == set(BROKERS)


def test_rows_go_to_the_broker_of_their_sharding_key_in_their_order() -> None:
    keys = [None if n % 7 == 0 else f"customer-{n % 5}" for n in range(60)]
    rows = pa.table({"body": [f"{n}" for n in range(60)], "sharding_key": keys})
    cluster = Cluster()
    send(cluster, rows)
    got: dict[str, list[int]] = {}
    for (name, _), bodies in cluster.stored.items():
        got.setdefault(name, []).extend(int(body) for body in bodies)
    assert sorted(number for numbers in got.values() for number in numbers) == list(range(60))
    for name, numbers in got.items():
        keyed = [number for number in numbers if keys[number] is not None]
        assert {of_sharding_key(str(keys[number]), BROKERS) for number in keyed} <= {name}
        assert keyed == sorted(keyed)
    assert send(cluster, rows) == 60


def placed(cluster: Cluster) -> dict[str, set[str]]:
    """The brokers of each row's body."""
    found: dict[str, set[str]] = {}
    for (name, _), bodies in cluster.stored.items():
        for body in bodies:
            found.setdefault(body, set()).add(name)
    return found


def test_the_keys_of_an_ordered_topic_go_where_its_list_says_and_follow_a_newer_one() -> None:
    keys = [f"customer-{n % 20}" for n in range(60)]
    rows = pa.table({"body": keys, "sharding_key": keys})
    cluster = Cluster()
    old, newer = (
        OrderConf.of(1, {"broker-a": 4, "broker-b": 2}),
        OrderConf.of(2, {"broker-b": 1, "broker-c": 2}),
    )
    cluster.conf = old
    assert send(cluster, rows) == 0
    assert placed(cluster) == {key: {of_sharding_key(key, in_order(old.write_queue_nums))} for key in keys}
    assert send(cluster, rows) == 60
    cluster.stored, cluster.brokers_conf = {}, newer
    assert send(cluster, rows) == 0
    assert placed(cluster) == {key: {of_sharding_key(key, in_order(newer.write_queue_nums))} for key in keys}
    assert sum(map(len, cluster.stored.values())) == 60, "each once"
    cluster.away = {"broker-b", "broker-c"}
    with pytest.raises(Unavailable):
        send(cluster, rows, brokerAway="elsewhere")
    with pytest.raises(InvalidRequest, match=r"broker-b:1;broker-c:2 .*does not send to broker-c"):
        send(cluster, rows, brokers="broker-a,broker-b")


def test_a_broker_that_is_away_is_waited_for_unless_another_will_do() -> None:
    rows = pa.table({"body": [f"{n}" for n in range(30)]})
    cluster = Cluster()
    cluster.away = {"broker-a", "broker-b"}
    with pytest.raises(Unavailable, match="broker broker-"):
        send(cluster, rows)


def test_what_a_broker_that_is_away_does_not_take_goes_elsewhere_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("structured_streaming.sink.sender.ELSEWHERE_S", 0.0)
    rows = pa.table({"body": [f"{n}" for n in range(30)]})
    cluster = Cluster()
    cluster.away = {"broker-a", "broker-b"}
    send(cluster, rows, brokerAway="elsewhere")
    assert {name for name, _ in cluster.stored} == {"broker-c"}
    assert sum(map(len, cluster.stored.values())) == 30


def test_the_brokers_are_the_options_or_the_checkpoints(tmp_path: Path) -> None:
    chosen = parse_write({"endpoint": "http://n", "brokers": "broker-b, broker-a"})
    assert chosen.brokers == ("broker-a", "broker-b"), "in whatever order they are given"
    (tmp_path / FILE).write_text(json.dumps({"v": 1, "brokers": ["broker-x"]}))
    several = parse_write({"endpoint": "http://127.0.0.1:1,http://127.0.0.1:2", "retryTimeoutMs": "1"})
    for place in (str(tmp_path), tmp_path.as_uri()):
        found = with_brokers(several, {"checkpointLocation": place}, streaming=True)
        assert found.brokers == ("broker-x",), "nobody has to answer"
        named = replace(several, brokers=("broker-x",))
        assert with_brokers(named, {"checkpointLocation": place}, streaming=True) == named
    one = parse_write({"endpoint": "http://127.0.0.1:1", "retryTimeoutMs": "1"})
    for nobody in (one, several, replace(one, brokers=("broker-x",))):
        with pytest.raises(Unavailable, match="whom to send to is not known"):
            with_brokers(nobody, {"checkpointLocation": str(tmp_path / "new")}, streaming=True)
    assert not (tmp_path / "new").exists()
