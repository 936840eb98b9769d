"""The calls about topics, groups, offsets, leases and the cluster.

Owns no state; each call is repeatable, so a lost answer is asked for again. Mixed into Client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from lakemq.client.message import encode_json
from lakemq.client.results import COMMIT_OK, CommitResult, GroupConfig, Lease, OffsetReset, TopicConfig
from lakemq.client.scope import (
    NAME_SERVERS_REFUSAL,
    Scoped,
    from_all,
    from_any,
    of_one_broker,
    on_every_master,
    on_every_master_of_a_list,
)
from lakemq.client.transport import Answer, Result, path_of
from store_native.errors import InvalidRequest, LakeMQError, Unavailable, from_code
from store_native.order_conf import OrderConf

QueueKey = tuple[str, int]
_PAGE = 10_000
"""Entries asked for at once, the most a broker gives."""


class AdminApi(Scoped):
    """Administers the broker; see :class:`lakemq.client.Client`.

    Where the endpoint is several brokers', topics and groups are changed on every master, and what belongs to
    one of them (offsets, leases, replication) takes its ``broker_name``.
    """

    @from_all("topic")
    def topics(self) -> list[TopicConfig]:
        """Returns all topics, the system's own included (``system`` is true)."""
        return list(self._pages(TopicConfig.from_json, "topics", "topics"))

    @from_any
    def topic(self, topic: str) -> TopicConfig:
        """Returns one topic; raises InvalidRequest TOPIC_NOT_EXIST."""
        return self._get(TopicConfig.from_json, "topics", topic)

    @on_every_master
    def put_topic(
        self,
        topic: str,
        *,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        order_conf: OrderConf | None = None,
        order_conf_before: int | None = None,
        force: bool = False,
    ) -> TopicConfig:
        """Creates a topic or changes what is given of it.

        Args:
            order_conf: The list of brokers of an ordered topic; ``order_topic`` makes one, and puts it where
                it belongs.
            order_conf_before: The version of the newest list that was heard of, 0 for none: a broker that has
                a newer one refuses the list.
            force: Allows fewer read than write queues, which strands messages.

        Raises:
            InvalidRequest: TOPIC_ILLEGAL, or TOPIC_CONFLICT for a change that needs ``force``.
            Unavailable: NOT_MASTER; or the broker's status, such as SLAVE_NOT_AVAILABLE, for a change that is
                stored and counts once it is as safe as the broker's policy asks. So it is for every change
                of a topic or a group.
        """
        config = _given(
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            attributes=None if attributes is None else dict(attributes),
            order_conf=None if order_conf is None else asdict(order_conf),
            order_conf_before=order_conf_before,
            force=force or None,
        )
        return _settled(self._put(config, "topics", topic)).read(TopicConfig.from_json)

    @on_every_master_of_a_list
    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages go with retention, a new topic of that name starts empty.

        Raises:
            Unavailable: A broker of an ordered topic's list is away: the topic would come back with it, so
                nothing was changed; else as :meth:`put_topic`.
        """
        _settled(self._transport.call("DELETE", path_of("topics", topic)))

    @from_all("group")
    def groups(self) -> list[GroupConfig]:
        """Returns all consumer groups."""
        return list(self._pages(GroupConfig.from_json, "groups", "groups"))

    @from_any
    def group(self, group: str) -> GroupConfig:
        """Returns one group; raises InvalidRequest GROUP_NOT_EXIST."""
        return self._get(GroupConfig.from_json, "groups", group)

    @on_every_master
    def put_group(
        self,
        group: str,
        *,
        retry_max_times: int | None = None,
        consume_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> GroupConfig:
        """Creates a group (and its retry topic) or changes what is given of it."""
        config = _given(
            retry_max_times=retry_max_times,
            consume_enable=consume_enable,
            consume_broadcast_enable=consume_broadcast_enable,
            attributes=None if attributes is None else dict(attributes),
        )
        return _settled(self._put(config, "groups", group)).read(GroupConfig.from_json)

    @on_every_master
    def delete_group(self, group: str, *, lease_epoch: int | None = None) -> None:
        """Deletes a group and its committed offsets.

        Args:
            group: The group.
            lease_epoch: The epoch of the group's lease, one broker's; without it a group that is held stays.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST, or LEASE_CONFLICT as of :meth:`reset_offsets`.
        """
        query = {"lease_epoch": lease_epoch}
        _settled(self._transport.call("DELETE", path_of("groups", group), query=query))

    @of_one_broker
    def group_offsets(self, group: str, *, broker_name: str | None = None) -> dict[QueueKey, int]:
        """Returns a group's committed offsets: (topic, queue_id) -> next offset to consume."""
        return dict(self._pages(_offset_of, "offsets", "groups", group, "offsets"))

    @of_one_broker
    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[QueueKey, int],
        *,
        lease_epoch: int | None = None,
        broker_name: str | None = None,
    ) -> CommitResult:
        """Commits a group's offsets; other queues keep their offsets.

        Among several brokers a slave whose master is away keeps them and offers them to the next master:
        what is committed without a lease is not lost so.

        Args:
            offsets: (topic, queue_id) -> next offset to consume.
            lease_epoch: The epoch of the caller's lease. A stale one raises LEASE_CONFLICT, and so does none
                while somebody holds the group.
            broker_name: Whose queues, where there are several brokers.

        Raises:
            Unavailable: NOT_MASTER from a slave that follows its master.
        """
        rows = [{"topic": t, "queue_id": q, "offset": offset} for (t, q), offset in offsets.items()]
        given = _given(offsets=rows, lease_epoch=lease_epoch)
        answer = self._put(given, "groups", group, "offsets", at_slaves=True)
        return CommitResult(answer.headers.get("X-LakeMQ-Status", COMMIT_OK))

    @of_one_broker
    def count_batch(
        self,
        group: str,
        batch: str,
        messages: Mapping[str, int],
        seconds: float,
        *,
        lease_epoch: int | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Tells the broker what came of a batch that a group's job has handled; its ``/metrics`` show it.

        Args:
            group: The group.
            batch: The batch's name: told again it counts once.
            messages: Attempts by verdict: ACK, RETRY, DEAD, DROPPED.
            seconds: How long the batch took.
            lease_epoch: The epoch of the caller's lease; needed while one is held.
            broker_name: Who is told, where there are several brokers.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST, LEASE_CONFLICT; REQUEST_CODE_NOT_SUPPORTED from a broker of an
                earlier version.
        """
        given = _given(messages=dict(messages), seconds=seconds, lease_epoch=lease_epoch)
        self._put(given, "groups", group, "batches", batch)

    @of_one_broker
    def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        timestamp: int | None = None,
        offsets: Mapping[int, int] | None = None,
        dry_run: bool = False,
        lease_epoch: int | None = None,
        broker_name: str | None = None,
    ) -> list[OffsetReset]:
        """Moves a group on one topic, or says what that would do.

        Args:
            to: ``earliest`` or ``latest``; exactly one of to, timestamp and offsets is given.
            timestamp: To the first messages stored at or after it (epoch ms).
            offsets: queue_id -> offset.
            dry_run: Changes nothing.
            lease_epoch: The epoch of the group's lease; while one is held, a reset without it is refused.
            broker_name: Whose queues, where several brokers have the topic.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST, or LEASE_CONFLICT with the owner, ``held_epoch`` and
                ``expires_at`` in its context.
        """
        rows = None if offsets is None else {str(queue): offset for queue, offset in offsets.items()}
        body = _given(
            topic=topic, to=to, timestamp=timestamp, offsets=rows, dry_run=dry_run, lease_epoch=lease_epoch
        )
        answer = self._transport.call(
            "POST", path_of("groups", group, "offsets", "reset"), body=encode_json(body), headers=_JSON
        )
        return answer.read(lambda found: [_reset_of(topic, row) for row in found["queues"]])

    @of_one_broker
    def acquire_lease(self, group: str, owner: str, ttl_ms: int, *, broker_name: str | None = None) -> Lease:
        """Takes or renews the right to drive a group.

        Raises:
            InvalidRequest: LEASE_CONFLICT; ``context`` has the owner and expires_at.
        """
        answer = self._transport.call(
            "POST",
            path_of("groups", group, "lease"),
            body=encode_json({"owner": owner, "ttl_ms": ttl_ms}),
            headers=_JSON,
        )
        return answer.read(lambda held: Lease(int(held["epoch"]), int(held["expires_at"])))

    @of_one_broker
    def release_lease(self, group: str, owner: str, *, broker_name: str | None = None) -> None:
        """Gives the right back, so that the next owner need not wait for it to expire."""
        self._transport.call("DELETE", path_of("groups", group, "lease"), query={"owner": owner})

    def route(self, topic: str) -> dict[str, Any]:
        """Returns which brokers hold a topic and how many queues each has, as the first endpoint says."""
        return self._get(_fields_of, "routes", topic)

    @from_any
    def cluster(self) -> dict[str, Any]:
        """Returns the broker's name, store id, version and delay levels; of several, one that answers."""
        said = self._get(_fields_of, "cluster")
        if "broker_name" not in said:
            # A name server answers this too, of itself: refused as it refuses the other calls of a broker.
            raise from_code(NAME_SERVERS_REFUSAL, f"{self._transport.endpoint} is no broker")
        return said

    @of_one_broker
    def replication(self, *, broker_name: str | None = None) -> dict[str, Any]:
        """Returns what the broker is to the others of its name: role, epoch, offsets, slaves."""
        return self._get(_fields_of, "replication")

    def promote(self, role: str = "async-master", *, force: bool = False) -> dict[str, Any]:
        """Makes the broker, a slave, the master of a new epoch.

        Returns ``epoch``, ``role``, ``begins_at`` (in the log) and what the slave heard of the master before:
        how far its log went (``master_end``), how much of that is missing at least (``lacks_bytes``), and how
        long before (``silent_s``); None where it heard of none since its start.

        Args:
            role: ``async-master`` or ``sync-master``.
            force: Also where it lacks what its master had confirmed, or its master answers: what only that
                has is lost then.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, it is a master, lacks what its master had confirmed, or that
                answers; or there are other endpoints beside it.
            OutcomeUnknown: No answer came; :meth:`replication` tells.
        """
        if self.is_routed:
            raise InvalidRequest(
                "ARGUMENT_ILLEGAL", "a slave is promoted at its own address: give that alone as endpoint"
            )
        path = path_of("replication", "promote")
        query = {"role": role, "force": str(force).lower()}
        return self._transport.call("POST", path, query=query, retries=0).read(_fields_of)

    def ready(self) -> bool:
        """Says whether the broker has recovered and serves; False too when nobody answers.

        Of several brokers one is enough.
        """
        if self.is_routed:
            try:
                brokers = self.cluster_routes.brokers()
            except LakeMQError:
                return False
            return any(broker.ready() for broker in brokers.values())
        try:
            self._transport.call("GET", "/readyz", retries=0)
        except LakeMQError:
            return False
        return True

    @of_one_broker
    def metrics(self, *, broker_name: str | None = None) -> str:
        """Returns the broker's metrics, in Prometheus' text form."""
        return self._transport.call("GET", "/metrics").body.decode("utf-8", "replace")

    def _pages(self, build: Callable[[Any], Result], member: str, *segments: str) -> Iterator[Result]:
        """Yields the entries of a list, page after page."""
        path, mark = path_of(*segments), None
        while True:
            answer = self._transport.call("GET", path, query={"limit": _PAGE, "next": mark})
            entries, mark = answer.read(lambda page: ([build(entry) for entry in page[member]], page["next"]))
            yield from entries
            if mark is None:
                return

    def _get(self, build: Callable[[Any], Result], *segments: str) -> Result:
        return self._transport.call("GET", path_of(*segments)).read(build)

    def _put(self, body: Mapping[str, Any], *segments: str, at_slaves: bool = False) -> Answer:
        content = encode_json(body)
        path = path_of(*segments)
        return self._transport.call("PUT", path, body=content, headers=_JSON, at_slaves=at_slaves)


def _settled(answer: Answer) -> Answer:
    """Returns the answer to a change that counts.

    Raises:
        Unavailable: It is stored, but nobody sees it yet; the code is the broker's status.
    """
    status = answer.headers.get("X-LakeMQ-Status")
    if answer.status != HTTPStatus.ACCEPTED or status is None:
        return answer
    where = f"broker {answer.broker_name}" if answer.broker_name else answer.endpoint
    what = f"{where} has stored the change; it counts once it is as safe as the broker's policy asks"
    raise Unavailable(status, what, endpoint=answer.endpoint)


_JSON = {"Content-Type": "application/json"}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _fields_of(answer: Any) -> dict[str, Any]:
    return dict(answer)


def _offset_of(row: Mapping[str, Any]) -> tuple[QueueKey, int]:
    return (row["topic"], int(row["queue_id"])), int(row["offset"])


def _reset_of(topic: str, row: Mapping[str, Any]) -> OffsetReset:
    before = row.get("from_offset")
    return OffsetReset(
        topic=topic,
        queue_id=int(row["queue_id"]),
        from_offset=None if before is None else int(before),
        to_offset=int(row["to_offset"]),
        redelivered=int(row["redelivered"]),
        skipped=int(row["skipped"]),
    )
