"""The settings of the broker core: values only.

Owns names, types, defaults and bounds of what the store and the flow control need; ingest_api/settings.py
reads them together with the front door's.

Invariants: plain values. An ``Interval`` says what a number may be and checks nothing itself: code that
builds these by hand answers for the values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval, MultipleOf

from ha_replicator.nameserver.registrar import HEARTBEAT_S
from lakemq.tls.files import TlsFiles
from store_native import default_options, option_bounds

FlushMode = Literal["sync", "async"]
RoleName = Literal["async-master", "sync-master", "slave"]

_GIB = 1 << 30
_TIB = 1 << 40

#: The store's own defaults and bounds: they are stated there, and nowhere else.
_STORE = default_options()
_BOUNDS = {name: Interval(ge=least, le=most) for name, (least, most) in option_bounds().items()}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How the store is opened; the names are the store's own.

    Attributes:
        flush: ``sync`` answers a send when its bytes are on disk, ``async`` when they are in the
            system's memory (a power failure then loses up to ``flush_interval_ms``).
        delay_levels: The delays of levels 1..n, durations of whole seconds: 10s, 5m, 2h or 1d.
        faults: Points at which the store fails on purpose; for tests.
    """

    path: str = "./store"
    flush: FlushMode = _STORE["flush"]
    flush_interval_ms: Annotated[int, _BOUNDS["flush_interval_ms"]] = _STORE["flush_interval_ms"]
    commitlog_file_size: Annotated[int, _BOUNDS["commitlog_file_size"], MultipleOf(4096)] = _STORE[
        "commitlog_file_size"
    ]
    consumequeue_file_entries: Annotated[int, _BOUNDS["consumequeue_file_entries"]] = _STORE[
        "consumequeue_file_entries"
    ]
    index_slots: Annotated[int, _BOUNDS["index_slots"]] = _STORE["index_slots"]
    index_entries: Annotated[int, _BOUNDS["index_entries"]] = _STORE["index_entries"]
    auto_create_topics: bool = _STORE["auto_create_topics"]
    default_queue_nums: Annotated[int, _BOUNDS["default_queue_nums"]] = _STORE["default_queue_nums"]
    retention_hours: Annotated[int, _BOUNDS["retention_hours"]] = _STORE["retention_hours"]
    delete_when_hour: Annotated[int, _BOUNDS["delete_when_hour"]] = _STORE["delete_when_hour"]
    delay_levels: str = _STORE["delay_levels"]
    checkpoint_interval_ms: Annotated[int, _BOUNDS["checkpoint_interval_ms"]] = _STORE[
        "checkpoint_interval_ms"
    ]
    idempotence_max_keys: Annotated[int, _BOUNDS["idempotence_max_keys"]] = _STORE["idempotence_max_keys"]
    idempotence_hours: Annotated[int, _BOUNDS["idempotence_hours"]] = _STORE["idempotence_hours"]
    faults: str = ""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What the broker takes at most.

    Attributes:
        max_request_bytes: Of a request's body, before and after decompression.
        max_message_bytes: Of a message's body; a record fits a log file.
        inline_bytes: A larger body is parsed on a worker thread, not on the event loop.
        bulk_threads: Those threads.
        body_timeout_s: A body must have arrived within it.
        sync_flush_timeout_s: A send not flushed by then is answered FLUSH_DISK_TIMEOUT.
        max_inflight_sends: Sends accepted and not yet answered.
        max_parsing_bytes: Bytes of large bodies held in memory.
        max_query_bytes: Of the messages that a query by key returns; the newest are returned, at least one.
        max_unsent_bytes: Bytes of answers held in memory for clients that read slowly; above it pulls
            are refused.
        send_queue_wait_s: A large body that waits longer for a thread is refused, not stored. The
            default is the producer client's timeout: after it nobody waits for the answer.
        disk_full_ratio: Above it the broker only reads.
        max_wait_ms: The longest long poll.
    """

    max_request_bytes: Annotated[int, Interval(ge=1, le=_GIB)] = 64 << 20
    max_message_bytes: Annotated[int, _BOUNDS["max_message_bytes"]] = _STORE["max_message_bytes"]
    inline_bytes: Annotated[int, Interval(ge=0, le=16 << 20)] = 256 << 10
    bulk_threads: Annotated[int, Interval(ge=1, le=256)] = 2
    body_timeout_s: Annotated[float, Interval(ge=0.01, le=3_600)] = 30.0
    sync_flush_timeout_s: Annotated[float, Interval(ge=0.01, le=3_600)] = 5.0
    max_inflight_sends: Annotated[int, Interval(ge=1, le=10_000_000)] = 10_000
    max_parsing_bytes: Annotated[int, Interval(ge=1, le=_TIB)] = 256 << 20
    max_query_bytes: Annotated[int, Interval(ge=1, le=_GIB)] = 16 << 20
    max_unsent_bytes: Annotated[int, Interval(ge=1, le=_TIB)] = 512 << 20
    send_queue_wait_s: Annotated[float, Interval(ge=0, le=3_600)] = 3.0
    disk_full_ratio: Annotated[float, Interval(ge=1e-6, le=1)] = 0.90
    max_wait_ms: Annotated[int, Interval(ge=0, le=3_600_000)] = 60_000


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """What the broker is to the others of its name.

    Attributes:
        role: An asynchronous master answers a send by its own disk, a synchronous one when slaves have it; a
            slave takes its master's log.
        broker_id: 0 is the master's.
        ha_port: Where slaves connect, on the broker's own address: 0 takes a free one, -1 takes no slaves.
        ha_protocol: LakeMQ's own, or RocketMQ's, in which nobody proves who they are and no report counts.
        master: A slave's: URL of its master's API, or of another slave of it: with https the link speaks TLS
            too; or ``ha://host:port``, where the master takes slaves itself (a RocketMQ master always): it
            speaks TLS where this broker has a certificate or authorities.
        min_in_sync: A synchronous master's, or of a slave that may become one: so many slaves must have a
            message.
        slave_reads: Readers that are far behind are sent to a slave (RocketMQ's ``slaveReadEnable``); of a
            slave, it keeps them.
        slave_reads_behind_bytes: So far behind the end of the log; 0: 40% of the machine's memory.
        catch_up_mib_per_s: So fast slaves that are far behind come nearer, together; more costs senders more.
    """

    role: RoleName = "async-master"
    broker_id: Annotated[int, Interval(ge=0, le=(1 << 31) - 1)] = 0
    ha_port: Annotated[int, Interval(ge=-1, le=65_535)] = -1
    ha_protocol: Literal["lakemq", "rocketmq"] = "lakemq"
    master: str = ""
    min_in_sync: Annotated[int, Interval(ge=1, le=64)] = 1
    catch_up_mib_per_s: Annotated[int, Interval(ge=1, le=100_000)] = 16
    slave_reads: bool = False
    slave_reads_behind_bytes: Annotated[int, Interval(ge=0, le=1 << 50)] = 0


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Who the broker is, how it stores and what it takes.

    Attributes:
        cluster_secret: What all brokers of the cluster know; None takes others of this machine only.
        nameservers: URLs of the name servers the broker registers with.
        nameserver_heartbeat_s: How often it does so when nothing changes.
        tls: What it proves to slaves who it is with, and whom it believes.
    """

    broker_name: str = _STORE["broker_name"]
    cluster: str = _STORE["cluster"]
    store: StoreSettings = field(default_factory=StoreSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    cluster_secret: bytes | None = None
    nameservers: tuple[str, ...] = ()
    nameserver_heartbeat_s: float = HEARTBEAT_S
    tls: TlsFiles = field(default_factory=TlsFiles)
