"""The calls that store messages.

Owns the forms a send can take: one message, many, NDJSON, Arrow. A send is repeated by itself only
with an Idempotency-Key, or when no byte of it left (see transport.py). Mixed into Client.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakemq.client import arrow
from lakemq.client.cluster import Sent
from lakemq.client.deadline import Deadline
from lakemq.client.message import Body, Message, message_of
from lakemq.client.results import BatchResult, SendResult
from lakemq.client.scope import Scoped
from lakemq.client.transport import check_retry_until, path_of
from store_native.errors import InvalidRequest
from store_native.names import ORDER_VERSION_HEADER

if TYPE_CHECKING:
    import pyarrow as pa


class ProduceApi(Scoped):
    """Sends messages; see :class:`lakemq.client.Client`.

    Where the endpoint is several brokers', a request goes to one of them, in turn, by its messages' sharding
    key or by its Idempotency-Key, and after a failure to another (cluster.py).
    """

    def send(
        self,
        topic: str,
        body: Body,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        queue_id: int | None = None,
        delay_level: int = 0,
        message_id: str | None = None,
        idempotency_key: str | None = None,
        retry_until: float | None = None,
    ) -> SendResult:
        """Sends one message and waits until it is as safe as the broker's policy says.

        Args:
            topic: The topic.
            body: Bytes, text, or a JSON value.
            tags, keys, properties, sharding_key, queue_id, delay_level, message_id: See
                :class:`~lakemq.client.Message`.
            idempotency_key: A repeat with the same key answers the first result and stores nothing;
                with it the client repeats a send that got no answer. Of several brokers it picks one.
            retry_until: Repeats what may be repeated until so many seconds from now, the broker's
                Retry-After honoured; None is the client's own.

        Raises:
            InvalidRequest: The message or topic is refused.
            Unavailable: Nothing was stored; try again later.
            OutcomeUnknown: No answer came, and none to the repeats (without a key there are none).
            Closed: The client was closed, or the broker's store; a send that waited for the store
                when it failed may be stored.
        """
        message = Message(
            body,
            tags=tags,
            keys=keys,
            properties=properties or {},
            sharding_key=sharding_key,
            queue_id=queue_id,
            delay_level=delay_level,
            message_id=message_id,
        )
        return self.send_message(topic, message, idempotency_key=idempotency_key, retry_until=retry_until)

    def send_message(
        self,
        topic: str,
        message: Message,
        *,
        idempotency_key: str | None = None,
        retry_until: float | None = None,
        in_turn: bool = False,
    ) -> SendResult:
        """Sends one :class:`~lakemq.client.Message`; otherwise as :meth:`send`.

        Args:
            in_turn: The key is of this one call: of several brokers the request goes to whose turn it is, not
                to the key's.
        """
        data = message.encoded()
        keys = () if message.sharding_key is None else (message.sharding_key,)
        return self._post(
            topic,
            data,
            "application/json",
            SendResult.from_json,
            idempotency_key,
            retry_until,
            sharding_keys=lambda: keys,
            in_turn=in_turn,
        )

    def send_one_way(self, /, topic: str, body: Body | Message, **fields: Any) -> None:
        """Sends one message and returns once a broker has it in its log, before any flush or slave does.

        It is never repeated at a broker that may have it: where that one's disk or process fails, or the
        answer is lost, the message may be lost too.

        Args:
            topic: The topic.
            body: The body, or a whole :class:`~lakemq.client.Message`.
            fields: Those of the message besides its body, as for :meth:`send`.

        Raises:
            LakeMQError: As :meth:`send` without a key; the connection and the broker's refusals are noticed.
        """
        message = message_of(body, fields)
        keys = () if message.sharding_key is None else (message.sharding_key,)
        data = message.encoded()
        build = SendResult.from_json
        self._post(
            topic, data, "application/json", build, None, None, sharding_keys=lambda: keys, one_way=True
        )

    def send_many(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        full_results: bool = False,
        retry_until: float | None = None,
    ) -> BatchResult:
        """Sends messages in one request: all are stored, or none and the error names the bad one.

        Args:
            full_results: Asks for one result per message.

        Raises:
            ValueError: There is no message.
            LakeMQError: As :meth:`send`; ``context["index"]`` counts from 0.
        """
        if not messages:
            raise ValueError("send_many needs at least one message")
        data = b"".join(message.to_line() for message in messages)
        return self.send_ndjson(
            topic, data, idempotency_key=idempotency_key, full_results=full_results, retry_until=retry_until
        )

    def send_ndjson(
        self,
        topic: str,
        data: bytes,
        *,
        idempotency_key: str | None = None,
        full_results: bool = False,
        retry_until: float | None = None,
        in_turn: bool = False,
    ) -> BatchResult:
        """Sends message objects, one per line; ``context["line"]`` of an error counts from 1.

        Otherwise as :meth:`send_many` and :meth:`send_message`.
        """
        build = BatchResult.from_json
        return self._post(
            topic,
            data,
            "application/x-ndjson",
            build,
            idempotency_key,
            retry_until,
            full_results,
            lambda: _keys_in_lines(data),
            in_turn,
        )

    def send_arrow(
        self,
        topic: str,
        data: bytes | pa.Table | pa.RecordBatch,
        *,
        idempotency_key: str | None = None,
        retry_until: float | None = None,
        order_version: int | None = None,
    ) -> BatchResult:
        """Sends rows in one request; otherwise as :meth:`send_many`.

        Args:
            topic: The topic.
            data: A table or batch with the column ``body`` and optionally keys, tags, properties,
                sharding_key, queue_id, delay_level, due_at (until when it waits, at most for its
                level); or the bytes of an Arrow IPC stream.
            idempotency_key: As for :meth:`send`.
            retry_until: As for :meth:`send`.
            order_version: To one broker: the version of the ordered topic's list by which the rows are its.
        """
        build = BatchResult.from_json
        encoded = arrow.encode(data)
        return self._post(
            topic,
            encoded,
            arrow.CONTENT_TYPE,
            build,
            idempotency_key,
            retry_until,
            sharding_keys=lambda: arrow.sharding_keys(encoded),
            order_version=order_version,
        )

    def _post(
        self,
        topic: str,
        data: bytes,
        content_type: str,
        build: Callable[[Any], Sent],
        idempotency_key: str | None,
        retry_until: float | None,
        full_results: bool = False,
        sharding_keys: Callable[[], Sequence[str]] = tuple,
        in_turn: bool = False,
        order_version: int | None = None,
        one_way: bool = False,
    ) -> Sent:
        check_retry_until(retry_until)
        deadline = Deadline(self.call_timeout_s if retry_until is None else retry_until)

        def on(client: ProduceApi, within_s: float | None, order_version: int | None) -> Sent:
            more = {} if order_version is None else {ORDER_VERSION_HEADER: str(order_version)}
            if one_way:
                more["Prefer"] = "respond-async"
            answer = client._transport.call(
                "POST",
                path_of("topics", topic, "messages"),
                query={"results": "full" if full_results else None},
                body=data,
                headers={"Content-Type": content_type, **more},
                stores=build,
                idempotency_key=idempotency_key,
                retry_until=retry_until,
                within_s=within_s,
                once=one_way,
            )
            result: Sent = answer.result
            if isinstance(result, BatchResult) and answer.broker_name:
                return replace(result, broker_name=answer.broker_name)
            return result

        if not self.is_routed:
            try:
                return on(self, None, order_version)
            except InvalidRequest as refused:
                if not self.refused_by_name_server(refused, deadline):
                    raise
        return self.cluster_routes.send(
            topic,
            on,
            sharding_keys=sharding_keys(),
            idempotency_key=idempotency_key,
            in_turn=in_turn,
            deadline=deadline,
            until_deadline=not one_way and (retry_until is not None or self.repeats_until_time),
        )


def _keys_in_lines(data: bytes) -> Sequence[str]:
    """The sharding keys in NDJSON; what is no such line is the broker's to refuse."""
    if b'"sharding_key"' not in data:
        return ()
    found = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError, AttributeError):
            found.append(json.loads(line).get("sharding_key"))
    return [key for key in found if isinstance(key, str)]
