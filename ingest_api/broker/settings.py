"""The settings of the broker core: values only.

Owns names, types and defaults of what the store and the flow control need; ingest_api/settings.py parses them
together with the front door's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FlushMode = Literal["sync", "async"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How the store is opened; the names are the store's own.

    Attributes:
        flush: ``sync`` answers a send when its bytes are on disk, ``async`` when they are in the
            system's memory (a power failure then loses up to ``flush_interval_ms``).
        delay_levels: The delays of levels 1..n; empty means the store's 18.
        faults: Points at which the store fails on purpose; for tests.
    """

    path: str = "./store"
    flush: FlushMode = "sync"
    flush_interval_ms: int = 100
    commitlog_file_size: int = 1 << 30
    consumequeue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    auto_create_topics: bool = True
    default_queue_nums: int = 4
    retention_hours: int = 72
    delete_when_hour: int = 4
    delay_levels: str = ""
    checkpoint_interval_ms: int = 5000
    idempotence_max_keys: int = 1_000_000
    idempotence_hours: int = 72
    faults: str = ""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What the broker takes at most.

    Attributes:
        max_request_bytes: Of a request's body, before and after decompression.
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

    max_request_bytes: int = 64 << 20
    max_message_bytes: int = 4 << 20
    inline_bytes: int = 256 << 10
    bulk_threads: int = 2
    body_timeout_s: float = 30.0
    sync_flush_timeout_s: float = 5.0
    max_inflight_sends: int = 10_000
    max_parsing_bytes: int = 256 << 20
    max_query_bytes: int = 16 << 20
    max_unsent_bytes: int = 512 << 20
    send_queue_wait_s: float = 3.0
    disk_full_ratio: float = 0.90
    max_wait_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Who the broker is, how it stores and what it takes."""

    broker_name: str = "broker-a"
    cluster: str = "DefaultCluster"
    store: StoreSettings = field(default_factory=StoreSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
