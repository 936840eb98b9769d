"""Which messages of an ordered topic a broker takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_api.broker.ordered_sends import OrderedSends
from ingest_api.broker.send_request import MessageFields, PayloadKind, SendRequest
from store_native import Store
from store_native.errors import InvalidRequest
from store_native.order_conf import OrderConf

ELSEWHERE = OrderConf.of(5, {"broker-b": 2})
LINE = b'{"body":"x","sharding_key":"1"}'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path, commitlog_file_size=1 << 20, index_slots=100, index_entries=200)
    end = made.put_topic("ordered", attributes=ELSEWHERE.attributes())
    made.put_topic("plain", attributes={"order.brokers-like": "broker-b:2"})
    made.wait_dispatched(end, 10_000)
    yield made
    made.close()


def refused(store: Store, payload: bytes, kind: PayloadKind = PayloadKind.JSON, **said: object) -> bool:
    request = SendRequest(**{"topic": "ordered", "kind": kind, **said})  # type: ignore[arg-type]
    try:
        OrderedSends(store, "broker-a").check(request, payload)
    except InvalidRequest as error:
        return error.code == "WRONG_BROKER"
    return False


@pytest.mark.parametrize(("version", "expected"), [(None, True), (4, True), (5, False), (6, False)])
def test_a_sender_by_an_older_list_or_by_none_is_refused(
    store: Store, version: int | None, expected: bool
) -> None:
    assert refused(store, LINE, order_version=version) is expected


def test_what_has_no_sharding_key_of_its_own_or_names_its_queue_is_taken(store: Store) -> None:
    for payload in (b'{"body":"x"}', b'{"body":"\\"sharding_key\\""}', b'{"body":{"sharding_key":"1"}}'):
        assert not refused(store, payload)
    assert not refused(store, b'{"body":"x","sharding_key":"1","queue_id":0}')
    assert not refused(store, LINE, topic="plain")
    assert not refused(store, LINE, topic="none")
    raw = {"kind": PayloadKind.RAW}
    assert refused(store, b"x", **raw, fields=MessageFields(sharding_key="1"))
    assert not refused(store, b"x", **raw, fields=MessageFields(sharding_key="1", queue_id=1))


@pytest.mark.parametrize(
    "payload",
    [
        b'{"sharding_key"',
        b'["sharding_key"]',
        b'{"sharding_key":1}',
        b'{"sharding_key":"\\ud800"}',
        b'{"messages":{"sharding_key":"1"}}',
        b"[" * 100_000 + b'"sharding_key"',
        b"\xff" + LINE,
    ],
)
def test_what_is_no_message_is_left_to_the_store_to_refuse(store: Store, payload: bytes) -> None:
    for kind in (PayloadKind.JSON, PayloadKind.NDJSON, PayloadKind.ARROW):
        assert not refused(store, payload, kind)


def test_a_key_that_is_known_is_passed_on_and_an_unknown_one_leaves_nothing(store: Store) -> None:
    before = store.watermarks()[0]
    assert refused(store, LINE, idempotency_key="k")
    assert store.watermarks()[0] == before
    store.append_json("ordered", LINE, idempotency_key="k")
    assert not refused(store, LINE, idempotency_key="k")
