"""Which messages of an ordered topic a broker takes: those whose sharding key the topic's list gives to it.

Owns the question, and how sharding keys are found in what is sent.

Invariants: what a newer list than this broker's may have brought here is taken; what was stored under the
same Idempotency-Key before is answered again, whatever the list says now.

Threads: where the send is appended, the event loop or the bulk pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ingest_api.broker.send_request import PayloadKind, SendRequest
from store_native import Store
from store_native.errors import InvalidRequest
from store_native.order_conf import BROKERS_ATTRIBUTE, OrderConf
from store_native.sharding import in_order, of_sharding_key

_KEY_FIELD = b'"sharding_key"'
_KEY_COLUMN = b"sharding_key"
_ORDERED = f'"{BROKERS_ATTRIBUTE}"'.encode()
_NO_QUEUE = (1 << 31) - 1


class OrderedSends:
    """Refuses what belongs to another broker.

    Args:
        store: Has the lists, with the topics.
        broker_name: Of this broker.
    """

    def __init__(self, store: Store, broker_name: str) -> None:
        self._store = store
        self._broker_name = broker_name

    def check(self, request: SendRequest, payload: bytes) -> None:
        """Returns where this broker may store what is sent.

        A message that names its queue goes where its sender says.

        Raises:
            InvalidRequest: WRONG_BROKER; ``order_conf`` in its context is the list that says so.
        """
        if not _may_have_keys(request, payload):
            return
        conf = self._list_of(request.topic)
        if conf is None or (request.order_version or 0) >= conf.version:
            return
        order = in_order(conf.write_queue_nums)
        for key in _keys(request, payload):
            name = of_sharding_key(key, order)
            if name != self._broker_name:
                if not self._is_repeat(request):
                    raise self._wrong(request, conf, key, name)
                return

    def _list_of(self, topic: str) -> OrderConf | None:
        config = self._store.topic_json(topic)
        if config is None or _ORDERED not in config:
            return None
        return OrderConf.of_attributes(json.loads(config)["attributes"])

    def _is_repeat(self, request: SendRequest) -> bool:
        """Says whether the key is known: the store looks for it before it looks for the queue, here none."""
        if request.idempotency_key is None:
            return False
        try:
            self._store.append_message(
                request.topic, b"?", queue_id=_NO_QUEUE, idempotency_key=request.idempotency_key
            )
        except InvalidRequest as error:
            return error.code != "QUEUE_NOT_EXIST"
        return True

    def _wrong(self, request: SendRequest, conf: OrderConf, key: str, name: str) -> InvalidRequest:
        used = request.order_version
        went_by = "no list" if used is None else f"the list of version {used}"
        return InvalidRequest(
            "WRONG_BROKER",
            f"the messages of sharding key {key!a:.80} are broker {name}'s, not {self._broker_name}'s: topic "
            f"{request.topic} is ordered over {conf}, and the sender went by {went_by}. Nothing "
            "was stored; send it through name servers, or all brokers' addresses, and it goes there",
            topic=request.topic,
            broker_name=name,
            order_conf={"version": conf.version, "brokers": conf.brokers},
        )


def _may_have_keys(request: SendRequest, payload: bytes) -> bool:
    if request.kind is PayloadKind.RAW:
        return request.fields is not None and request.fields.sharding_key is not None
    return (_KEY_COLUMN if request.kind is PayloadKind.ARROW else _KEY_FIELD) in payload


def _keys(request: SendRequest, payload: bytes) -> Iterator[str]:
    """The sharding keys of messages that name no queue; what is no message is the store's to refuse."""
    messages: Iterable[Any]
    try:
        if request.kind is PayloadKind.RAW:
            fields = request.fields
            messages = () if fields is None else [_row(fields.sharding_key, fields.queue_id)]
        elif request.kind is PayloadKind.ARROW:
            messages = _rows(payload)
        elif request.kind is PayloadKind.NDJSON:
            messages = [json.loads(line) for line in payload.splitlines() if _KEY_FIELD in line]
        else:
            said = json.loads(payload)
            messages = said.get("messages", [said])
        for message in messages:
            key = message.get("sharding_key")
            if isinstance(key, str) and message.get("queue_id") is None:
                key.encode()
                yield key
    except (AttributeError, OSError, RecursionError, TypeError, ValueError):
        return


def _rows(stream: bytes) -> list[dict[str, Any]]:
    import pyarrow as pa  # a send of Arrow by nobody's list is rare, and most brokers never see one

    with pa.ipc.open_stream(stream) as reader:
        rows = reader.read_all()
    wanted = [name for name in ("sharding_key", "queue_id") if name in rows.column_names]
    found: list[dict[str, Any]] = rows.select(wanted).to_pylist()
    return found


def _row(sharding_key: str | None, queue_id: int | None) -> dict[str, Any]:
    return {"sharding_key": sharding_key, "queue_id": queue_id}
