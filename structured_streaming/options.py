"""The options of ``format("lakemq")``: their values, and what is wrong with them.

Owns what each option means and what it excludes; option_names.py has the names.

Invariants: a value is checked here once; what comes out are frozen values that pickle. Names and meanings are
those of Spark's Kafka source where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakemq.client.compression import COMPRESSIONS
from lakemq.client.endpoint import chosen_endpoints, name_of_ca_file
from lakemq.tls.trust import trusting_context
from store_native import validate_group, validate_tags, validate_topic
from store_native.errors import InvalidRequest
from structured_streaming import cluster_offsets
from structured_streaming.offsets import illegal
from structured_streaming.option_names import SINK_OPTIONS, SOURCE_OPTIONS, GivenOptions
from structured_streaming.retry_timeout import RETRY_TIMEOUT_MS
from structured_streaming.starting_offsets import (
    EARLIEST,
    LATEST,
    ByBroker,
    ByTimestamps,
    Earliest,
    Explicit,
    GroupPosition,
    NoMatch,
    Position,
    SinceTimestamp,
)
from structured_streaming.subscription import Subscription


@dataclass(frozen=True)
class ReadOptions:
    """What a source reads and how.

    Attributes:
        path: A local store's directory, read by mapping its files; None reads over HTTP.
        endpoint: The broker, or name servers or brokers with commas between them; needed without ``path``,
            and for ``group``.
        subscription: Which queues.
        starting: Where a query without a checkpoint starts.
        ending: Where a batch read ends.
        max_offsets_per_trigger: At most so many messages in one micro-batch.
        min_partitions, max_records_per_partition: How a batch is cut into tasks.
        fail_on_data_loss: Messages that are gone fail the query; else they are skipped and counted.
        fail_on_reused_offsets: So does, all the same, what gives offsets of the query to other messages.
        layout: ``lakemq`` or ``kafka`` columns.
        include_properties, include_headers: The further columns of each layout.
        tags: ``*`` or ``A || B``, filtered in the store.
        group: Whose progress is reported; None reports none.
        group_lease: Only one query may run for the group.
        retry_timeout_ms: How long a broker that is away is waited for.
        plan_file: Where begin and end of each batch are written before it runs.
        batch_bound_file: Where a lower max_offsets_per_trigger may be, looked at before each batch.
        brokers_join: ``starting`` need not name every broker; the others join the running query.
        join_at_group: A broker that joins begins at this group's committed offsets; None: at its oldest
            message.
        ca_file: The authorities that are believed of https addresses, a file on each host; None: the
            system's.
    """

    path: str | None
    endpoint: str | None
    subscription: Subscription
    starting: Position
    ending: Position
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    fail_on_reused_offsets: bool
    layout: Literal["lakemq", "kafka"]
    include_properties: bool
    include_headers: bool
    tags: str
    group: str | None
    group_lease: bool
    retry_timeout_ms: int
    plan_file: str | None = None
    batch_bound_file: str | None = None
    brokers_join: bool = False
    join_at_group: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True)
class WriteOptions:
    """Where a sink sends and how.

    Attributes:
        endpoint: The broker.
        topic: The topic of every row; None takes the column ``topic``.
        name: A stable name in the idempotence keys instead of the query's id.
        rows_per_request: Rows of one topic in one request.
        retry_timeout_ms: How long a task keeps trying to send one request.
        brokers: Those to send to, by name, sorted; none: the endpoint is one.
        elsewhere: What a broker that is away does not take goes to another, though it may be stored on both.
        ca_file: See :class:`ReadOptions`.
        compression: Of the requests; see :class:`lakemq.client.Client`.
    """

    endpoint: str
    topic: str | None
    name: str | None
    rows_per_request: int
    retry_timeout_ms: int
    brokers: tuple[str, ...] = ()
    elsewhere: bool = False
    ca_file: str | None = None
    compression: str = "none"


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Checks the options of a source.

    Args:
        options: As Spark gives them; names in any case.
        streaming: A stream starts at ``latest`` by default and has no end; a batch read is
            ``earliest`` to ``latest``.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL, FILTER_ILLEGAL, GROUP_ILLEGAL, TOPIC_ILLEGAL; the text names
            the option.
    """
    given = GivenOptions(options, SOURCE_OPTIONS, "source")
    path = given.text("path")
    endpoint = given.text("endpoint")
    if path is None and endpoint is None:
        raise illegal("give the option path (a store on this host) or endpoint (a broker's address)")
    if path is not None and endpoint is not None and len(chosen_endpoints(endpoint)) > 1:
        raise illegal("path is one broker's store: give that broker's address as endpoint, or no path")
    group = given.text("group")
    if group is not None:
        validate_group(group)
        if endpoint is None:
            raise illegal("the option group needs endpoint: the broker keeps the offsets of groups")
    starting = _starting(given, streaming)
    if isinstance(starting, GroupPosition) and group is None:
        raise illegal("startingOffsets=group needs the option group")
    layout = given.one_of("layout", ("lakemq", "kafka"), "lakemq")
    return ReadOptions(
        path=path,
        endpoint=endpoint,
        subscription=_subscription(given),
        starting=starting,
        ending=_ending(given, streaming),
        max_offsets_per_trigger=given.positive("maxOffsetsPerTrigger"),
        min_partitions=given.positive("minPartitions"),
        max_records_per_partition=given.positive("maxRecordsPerPartition"),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        fail_on_reused_offsets=given.flag("failOnReusedOffsets", False),
        layout="kafka" if layout == "kafka" else "lakemq",
        include_properties=given.flag("includeProperties", False),
        include_headers=given.flag("includeHeaders", False),
        tags=_tags(given),
        group=group,
        group_lease=given.flag("groupLease", True),
        retry_timeout_ms=given.positive("retryTimeoutMs") or RETRY_TIMEOUT_MS,
        plan_file=given.text("planFile"),
        batch_bound_file=given.text("batchBoundFile"),
        brokers_join=given.flag("brokersJoin", False),
        join_at_group=given.text("joinAtGroup"),
        ca_file=_ca_file(given),
    )


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Checks the options of a sink; errors as :func:`parse_read`."""
    given = GivenOptions(options, SINK_OPTIONS, "sink")
    endpoint = given.text("endpoint")
    if endpoint is None:
        raise illegal("the sink sends to a broker: give the option endpoint")
    topic = given.text("topic")
    if topic is not None:
        validate_topic(topic)
    name = given.text("name")
    if name is not None and not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", name):
        raise illegal("name must be 1 to 64 of A-Z a-z 0-9 _ . : -", option="name")
    return WriteOptions(
        endpoint=endpoint,
        topic=topic,
        name=name,
        rows_per_request=given.positive("rowsPerRequest") or 10_000,
        retry_timeout_ms=given.positive("retryTimeoutMs") or RETRY_TIMEOUT_MS,
        brokers=tuple(sorted({n.strip() for n in (given.text("brokers") or "").split(",") if n.strip()})),
        elsewhere=given.one_of("brokerAway", ("wait", "elsewhere"), "wait") == "elsewhere",
        ca_file=_ca_file(given),
        compression=given.one_of("compression", COMPRESSIONS, "none"),
    )


def _ca_file(given: GivenOptions) -> str | None:
    """Reads the option, and looks into a file that is needed: an executor's error would come late."""
    ca_file = given.text("caFile")
    if ca_file is not None and "https:" in (given.text("endpoint") or "").lower():
        trusting_context(ca_file, name_of_ca_file(ca_file, "caFile"))
    return ca_file


def _tags(given: GivenOptions) -> str:
    """Reads the expression here: where a topic has no message yet, no reader reads it."""
    tags = given.text("tags") or "*"
    try:
        validate_tags(tags)
    except InvalidRequest as error:
        raise InvalidRequest(error.code, f"tags: {error.detail}", option="tags") from error
    return tags


def _subscription(given: GivenOptions) -> Subscription:
    kind = given.only_one("subscribe", "subscribePattern", "assign")
    if kind is None:
        raise illegal("give one of subscribe, subscribePattern and assign")
    if kind == "subscribe":
        topics = frozenset(name.strip() for name in (given.text(kind) or "").split(",") if name.strip())
        for topic in topics:
            validate_topic(topic)
        if not topics:
            raise illegal("subscribe names no topic", option=kind)
        return Subscription(topics=topics)
    if kind == "subscribePattern":
        pattern = given.text(kind) or ""
        try:
            re.compile(pattern)
        except re.error as error:
            raise illegal(f"subscribePattern is no regular expression: {error}", option=kind) from None
        return Subscription(pattern=pattern)
    return Subscription(queues=_assigned(given.json_object(kind)))


def _assigned(value: dict[str, Any]) -> dict[str, frozenset[int]]:
    queues: dict[str, frozenset[int]] = {}
    for topic, ids in value.items():
        validate_topic(topic)
        if not isinstance(ids, list) or not ids or not all(type(i) is int and i >= 0 for i in ids):
            raise illegal('assign must look like {"topic":[0,1]}', option="assign")
        queues[topic] = frozenset(ids)
    if not queues:
        raise illegal("assign names no topic", option="assign")
    return queues


def _starting(given: GivenOptions, streaming: bool) -> Position:
    kind = given.only_one("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    strategy = given.one_of("startingOffsetsByTimestampStrategy", ("latest", "error"), "latest")
    no_match: NoMatch = "error" if strategy == "error" else "latest"
    if kind == "startingTimestamp":
        return SinceTimestamp(given.positive(kind) or 0, no_match)
    if kind == "startingOffsetsByTimestamp":
        return _numbers(_per_queue(kind, given.json_object(kind), lowest=0), no_match)
    fallback = given.one_of("groupInitialOffsets", ("latest", "earliest"), "latest")
    text = given.text("startingOffsets") or ("latest" if streaming else "earliest")
    if text.lower() == "group":
        return GroupPosition(EARLIEST if fallback == "earliest" else LATEST)
    if text.lower() == "latest" and not streaming:
        raise illegal("a batch read cannot start at latest: it would read nothing", option="startingOffsets")
    return _offsets(given, "startingOffsets", text)


def _ending(given: GivenOptions, streaming: bool) -> Position:
    kind = given.only_one("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    if kind is not None and streaming:
        raise illegal(f"{kind} is for batch reads only", option=kind)
    if kind == "endingTimestamp":
        return SinceTimestamp(given.positive(kind) or 0, "latest")
    if kind == "endingOffsetsByTimestamp":
        return _numbers(_per_queue(kind, given.json_object(kind), lowest=0), "latest")
    position = _offsets(given, "endingOffsets", given.text("endingOffsets") or "latest")
    if isinstance(position, Earliest) or (
        isinstance(position, Explicit | ByBroker) and -2 in position.values()
    ):
        raise illegal("a read cannot end at earliest", option="endingOffsets")
    return position


def _offsets(given: GivenOptions, name: str, text: str) -> Position:
    if text.lower() == "earliest":
        return EARLIEST
    if text.lower() == "latest":
        return LATEST
    if not text.startswith("{"):
        raise illegal(f"{name} must be earliest, latest or JSON, not {text!r}", option=name)
    value = given.json_object(name)
    # A checkpoint's version is a number; "v" may be a topic as well, and that is an object of queues.
    if isinstance(value.get("v", {}), dict):
        return _numbers(_per_queue(name, value, lowest=-2), None)
    if value.get("v") == cluster_offsets.VERSION:
        return ByBroker.from_checkpoint(value)
    return Explicit.from_checkpoint(value)


def _numbers(numbers: dict[tuple[str, str, int], int], no_match: NoMatch | None) -> Position:
    """Offsets, or times; of brokers where one is named."""
    if any(broker for _, broker, _ in numbers):
        return ByBroker(numbers, no_match)
    plain = {(topic, queue_id): number for (topic, _, queue_id), number in numbers.items()}
    return Explicit(plain) if no_match is None else ByTimestamps(plain, no_match)


def _per_queue(name: str, value: dict[str, Any], *, lowest: int) -> dict[tuple[str, str, int], int]:
    """Numbers by topic, broker ("" where none is named) and queue: ``{"t":{"0":12,"broker-b/0":7}}``."""
    numbers: dict[tuple[str, str, int], int] = {}
    for topic, queues in value.items():
        if not isinstance(queues, dict) or not queues:
            raise illegal(f'{name} must look like {{"topic":{{"0":12,"1":7}}}}', option=name)
        for key, number in queues.items():
            broker, _, queue_id = key.rpartition("/")
            if not queue_id.isdigit() or type(number) is not int or number < lowest:
                raise illegal(f"{name}: {topic}/{key} has no usable value: {number!r}", option=name)
            numbers[topic, broker, int(queue_id)] = number
    return numbers
