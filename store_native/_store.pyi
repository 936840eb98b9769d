"""The native store. Offsets are integers, times epoch milliseconds, hosts (address, port).

Every call that does work lets go of the interpreter lock. Errors are those of `store_native.errors`.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, Literal, Self, TypedDict, Unpack, final, type_check_only

__all__ = [
    "SYSTEM_TOPICS",
    "Appended",
    "Batch",
    "Bootstrap",
    "Dump",
    "Reader",
    "ReplicatedLog",
    "Slice",
    "Store",
    "default_options",
    "dump",
    "java_hash",
    "option_bounds",
    "recover",
    "validate_group",
    "validate_tags",
    "validate_topic",
    "verify",
]

SYSTEM_TOPICS: list[str]

@type_check_only
class StoreOptions(TypedDict, total=False):
    """How a store is opened; `default_options` has what holds for one that is left out."""

    broker_name: str
    cluster: str
    store_host: tuple[str, int]
    role: Literal["master", "slave"]
    asks_replicas: bool
    flush: Literal["sync", "async"]
    flush_interval_ms: int
    commitlog_file_size: int
    consumequeue_file_entries: int
    index_slots: int
    index_entries: int
    auto_create_topics: bool
    default_queue_nums: int
    retention_hours: int
    delete_when_hour: int
    max_message_bytes: int
    delay_levels: str
    checkpoint_interval_ms: int
    idempotence_max_keys: int
    idempotence_hours: int

def option_bounds() -> dict[str, tuple[int, int]]:
    """Returns (smallest, largest) value of each option that is a number."""

def default_options() -> StoreOptions:
    """Returns the options of a store that is opened with none."""

@final
class Appended:
    """What an append gave: stored in the mapped log, safe as far as the watermarks have passed it."""

    @property
    def end_offset(self) -> int:
        """The append is flushed (dispatched, ...) when that watermark is at or behind this offset."""
    @property
    def count(self) -> int:
        """Messages of the request."""
    @property
    def waits(self) -> bool:
        """Whether the sender waits for the flush: `wait_store_ok` of any message."""
    @property
    def duplicate(self) -> bool:
        """The Idempotency-Key was seen before: the first result again, nothing stored."""
    @property
    def places(self) -> list[tuple[str, str, int, int, bool]]:
        """(message id, offset message id, queue id, queue offset, scheduled), in the request's order.

        Of a scheduled message queue and offset are the schedule's until it is delivered.
        """
    def answer(self, status: str) -> bytes:
        """Renders the sender's answer, in JSON; ``status`` is the outcome (RocketMQ's SendStatus)."""

@final
class Batch:
    """A record batch over the Arrow C data interface: ``pyarrow.record_batch(batch)``."""

    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Bootstrap:
    """A slave's store being made from its master's: the log, then the snapshot that belongs to it.

    Args:
        path: The directory; it holds no messages.
        file_size: Of the master's log files.
        first: Where its log begins.

    Raises:
        Unavailable: STORE_LOCKED, DISK_FULL.
        InvalidRequest: ARGUMENT_ILLEGAL, the directory holds messages.
    """

    def __new__(cls, path: str | PathLike[str], file_size: int, first: int) -> Self: ...
    @staticmethod
    def is_wanted(path: str | PathLike[str]) -> bool:
        """Whether the directory holds no message, or a bootstrap that was not finished."""
    def append(self, offset: int, data: bytes, next_offset: int) -> None:
        """Appends bytes of the master's log. Raises InvalidRequest OFFSET_ILLEGAL: not the next."""
    def end(self) -> int: ...
    def finish(self, snapshot: bytes, epochs: list[tuple[int, int]]) -> None:
        """Makes it a store, as after a crash. Raises DataCorrupt for a snapshot that does not fit."""
    def abandon(self) -> None:
        """Leaves an empty directory: the master's log tells everything itself."""
    def close(self) -> None:
        """Gives the directory back; what was begun is begun anew next time."""

@final
class Slice:
    """What a read of a queue gave."""

    @property
    def status(self) -> str:
        """FOUND, NO_NEW_MSG, NO_MATCHED_MSG or OFFSET_ILLEGAL."""
    @property
    def next_offset(self) -> int:
        """Where to read on."""
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def damaged(self) -> list[tuple[int, int]]:
        """Ranges of queue offsets [from, to) whose messages are damaged and were passed over."""
    @property
    def physical_offset(self) -> int | None:
        """Where in the log the last message looked at begins; None when there was none."""
    @property
    def messages(self) -> bytes:
        """`read_json`: a JSON array; `read_ipc`: an Arrow IPC stream; else empty."""
    @property
    def batch(self) -> Batch | None:
        """`read_arrow`: the messages; else None."""

@type_check_only
class _Reads:
    @property
    def broker_name(self) -> str: ...
    @property
    def store_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    def queues(self, topic: str) -> list[tuple[int, int, int, int]]:
        """(queue id, min offset, max offset, confirmed offset) of each queue.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST.
        """
    def queue_epochs(
        self, topic: str
    ) -> tuple[bool, list[tuple[int, int, int, int, list[tuple[int, int, bool]]]]]:
        """As `queues`, each with (epoch, its first queue offset, whether it is a bound) of the epochs shown.

        The oldest epoch is first. A bound: it may have been an earlier offset, which retention has taken.

        The first value says whether these are all epochs of the log. Of epochs of which the same is told
        there is only the newest.

        Raises:
            InvalidRequest: TOPIC_NOT_EXIST.
        """
    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min offset, max offset) of one queue."""
    def read_json(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 262_144,
        tags: str = "*",
    ) -> Slice: ...
    def read_arrow(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        end_offset: int | None = None,
        max_messages: int = 10_000,
        max_bytes: int = 16_777_216,
        tags: str = "*",
        columns: Sequence[str] | None = None,
    ) -> Slice: ...
    def read_ipc(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        end_offset: int | None = None,
        max_messages: int = 10_000,
        max_bytes: int = 16_777_216,
        tags: str = "*",
        columns: Sequence[str] | None = None,
    ) -> Slice: ...
    def query_json(
        self,
        topic: str,
        key: str,
        *,
        begin: int = 0,
        end: int = ...,
        max_messages: int = 32,
        max_bytes: int = ...,
    ) -> bytes:
        """Messages that carry the key (one of KEYS, or the message id), oldest first, as a JSON array.

        The newest, with at most ``max_bytes`` together, but at least one.
        """
    def find_message_json(self, message_id: str, topic: str | None = None) -> bytes | None:
        """A message by offset id, or by client id over the index of one topic or of all."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """First queue offset stored at or after `timestamp`; the end when none was."""
    def delay_levels(self) -> list[int]:
        """Milliseconds of level 1 and so on."""
    def close(self) -> None: ...

@final
class Store(_Reads):
    """The owner of a store directory, exclusive, with four threads of its own.

    Args:
        path: The directory; made when it is missing, recovered when it is not.
        faults: For tests: ``point:n`` kills the process at the n-th passing of a named point.
        options: ``flush="sync"``: what is flushed survives a power cut, and appends that wait at the same
            time share one fdatasync; ``"async"``: flushed every ``flush_interval_ms``. ``role="slave"``: it
            takes its master's log and no messages.

    Raises:
        Unavailable: STORE_LOCKED, DISK_FULL.
        DataCorrupt: A file has the wrong length, or log files are missing.
        InvalidRequest: ARGUMENT_ILLEGAL.
        TypeError: An option of another name or type.
    """

    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        faults: str = "",
        **options: Unpack[StoreOptions],
    ) -> Self: ...
    def replicated_log(self) -> ReplicatedLog: ...
    @property
    def recovery(self) -> dict[str, Any]:
        """What opening found.

        clean, rebuilt, repaired_queues, from_offset, end_offset, records, truncated_bytes, quarantined_bytes,
        elapsed_ms.
        """
    @property
    def cluster(self) -> str: ...
    @property
    def log_epoch(self) -> int:
        """Of the log's newest bytes: a slave may have heard of a higher one (`epoch`)."""
    @property
    def store_host(self) -> tuple[str, int]: ...
    @property
    def path(self) -> PathLike[str]: ...
    @property
    def flush_mode(self) -> str: ...
    @property
    def poisoned(self) -> str | None:
        """Why the store is read-only until it is reopened: a failed flush."""
    @property
    def dispatch_failure(self) -> str | None:
        """Why what is stored cannot be read at the moment; the store goes on trying."""
    @property
    def topic_changes(self) -> int:
        """How often the topic table changed, as far as it is dispatched."""
    def append_message(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: list[str] | None = None,
        properties: list[tuple[str, str]] | None = None,
        sharding_key: str | None = None,
        queue_id: int | None = None,
        flag: int = 0,
        delay_level: int = 0,
        message_id: str | None = None,
        born_timestamp: int | None = None,
        born_host: tuple[str, int] | None = None,
        idempotency_key: str | None = None,
        flush_later: bool = False,
    ) -> Appended: ...
    def append_json(
        self,
        topic: str,
        data: bytes,
        *,
        born_host: tuple[str, int] | None = None,
        idempotency_key: str | None = None,
        full_results: bool = False,
        flush_later: bool = False,
    ) -> Appended:
        """One message object, or ``{"messages": [...]}``; all are stored or none.

        Raises:
            InvalidRequest: With `index`, `line` and `pointer` in its context.
        """
    def append_ndjson(
        self,
        topic: str,
        data: bytes,
        *,
        born_host: tuple[str, int] | None = None,
        idempotency_key: str | None = None,
        full_results: bool = False,
        flush_later: bool = False,
    ) -> Appended:
        """One message a line."""
    def append_arrow(
        self,
        topic: str,
        data: bytes,
        *,
        born_host: tuple[str, int] | None = None,
        idempotency_key: str | None = None,
        full_results: bool = False,
        flush_later: bool = False,
    ) -> Appended:
        """An Arrow IPC stream, one message a row."""
    def watermarks(self) -> tuple[int, int, int, int]:
        """appended, flushed, dispatched, confirmed."""
    def flush_soon(self) -> None:
        """Has what was appended with `flush_later` flushed, where appends are waited for.

        Without it that is flushed with what comes after it, and in half a second at the latest.
        """
    def progress_fd(self) -> int:
        """An eventfd that turns readable when a watermark moved; the store owns it."""
    def alarm_fd(self) -> int:
        """An eventfd that turns readable, once, when the store became read-only; the store owns it."""
    def wait_flushed(self, end_offset: int, timeout_ms: int) -> bool: ...
    def wait_dispatched(self, end_offset: int, timeout_ms: int) -> bool: ...
    def topics_json(self, after: str = "", limit: int = ...) -> bytes:
        """A page of topics by name, those behind `after`; all when nothing is given."""
    def topic_json(self, topic: str) -> bytes | None: ...
    def put_topic(
        self,
        topic: str,
        *,
        read_queue_nums: int | None = None,
        write_queue_nums: int | None = None,
        perm: int | None = None,
        attributes: dict[str, str] | None = None,
        force: bool = False,
    ) -> int:
        """Creates or changes a topic; returns the offset to wait for."""
    def delete_topic(self, topic: str) -> int: ...
    def groups_json(self, after: str = "", limit: int = ...) -> bytes:
        """A page of groups by name, those behind `after`; all when nothing is given."""
    def group_json(self, group: str) -> bytes | None: ...
    def put_group(
        self,
        group: str,
        *,
        retry_max_times: int | None = None,
        consume_enable: bool | None = None,
        consume_broadcast_enable: bool | None = None,
        attributes: dict[str, str] | None = None,
    ) -> int:
        """Creates or changes a group, and makes its retry topic; returns the offset to wait for."""
    def delete_group(self, group: str) -> int: ...
    def commit_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> int:
        """Notes where a group stands: (topic, queue id, next offset)."""
    def group_offsets(self, group: str) -> list[tuple[str, int, int]]: ...
    def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> tuple[int, int]:
        """(fencing epoch, expires at). Raises InvalidRequest LEASE_CONFLICT while another holds it."""
    def release_lease(self, group: str, owner: str) -> bool: ...
    def lease(self, group: str) -> tuple[str, int, int] | None:
        """(owner, epoch, expires at) of the lease in force."""
    def lease_or_claim(self, group: str) -> tuple[str, int, int] | None:
        """As `lease`, also where its record is in the log and not confirmed yet."""
    def watch(self, topic: str, queue_id: int) -> None:
        """Asks to have the queue's next message reported by `take_notified_queues`, once."""
    def take_notified_queues(self) -> list[tuple[str, int]]:
        """Watched queues that got messages since the last call; they are watched no longer."""
    def take_events(self) -> list[tuple[Literal["warning", "error"], str]]:
        """What the store has to say to its operator since the last call, oldest first; 256 lines are kept.

        Call it once more after :meth:`close`, also where that failed: the store writes them nowhere.
        """
    def delay_progress(self) -> list[tuple[int, int, int]]:
        """(level, next offset, max offset) of every level with entries."""
    def stats(self) -> dict[str, float]: ...
    def checkpoint(self) -> None: ...
    def expire(self, now_ms: int | None = None) -> int:
        """Deletes what retention allows; returns how many files went."""

@final
class Reader(_Reads):
    """Reads a store beside its owner, or one that nobody owns (RocketMQ's too). Writes nothing."""

    def __new__(cls, path: str | PathLike[str]) -> Self: ...
    def is_current(self) -> bool:
        """Whether the directory still holds that store; else every read raises Closed STORE_CLOSED."""
    def topics(self) -> list[str]: ...
    def topic_id(self, topic: str) -> str:
        """New for each creation of a topic; empty for one that RocketMQ made."""

@final
class ReplicatedLog:
    """The log of a store, for its replicator. Offsets are physical; a range is whole requests of one file.

    Every call may wait for the append lock, which a large request holds for milliseconds.
    """

    def marks(self) -> tuple[int, int, int, int]:
        """(first byte, appended, flushed, confirmed)."""
    def role(self) -> tuple[Literal["master", "slave"], int]:
        """What the store is now, and the highest epoch it heard of."""
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, offset of its first byte), oldest first."""
    def common_end(self, epochs: Sequence[tuple[int, int]], end: int) -> int | None:
        """Up to where this log is the same as one with these epochs that ends at ``end``; None: nowhere."""
    def digest(self, begin: int, end: int) -> int:
        """CRC-32 of the flushed bytes [begin, end). Raises InvalidRequest OFFSET_ILLEGAL."""
    def read(self, begin: int, max_bytes: int) -> tuple[int, int, bytes]:
        """(epoch, next offset, bytes) of the flushed log from ``begin`` on; empty at its end.

        Raises:
            InvalidRequest: OFFSET_ILLEGAL, the log does not hold that offset.
            DataCorrupt: No request begins there.
        """
    def read_raw(self, begin: int, max_bytes: int) -> bytes:
        """The flushed bytes from ``begin`` on as one file has them, cut anywhere; empty at the log's end."""
    def bootstrap_snapshot(self) -> tuple[int, bytes]:
        """(offset, state as of it) for a slave whose store is made from this one's; see `Bootstrap`.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE, none fits the log yet.
        """
    def file_size(self) -> int:
        """Bytes of a file of the log."""
    def append(self, master_epoch: int, offset: int, epoch: int, next_offset: int, data: bytes) -> int:
        """Appends a range of the master's log; returns the log's end. All of it or nothing.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE on a master, or from a master whose epoch is over.
            InvalidRequest: OFFSET_ILLEGAL, it is not the next one.
            DataCorrupt: It is not whole, valid requests.
            Closed: The store takes no more.
        """
    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Notes on a slave that an epoch goes on at the log's end, before it has a byte of it."""
    def fetch(self, begin: int, end: int) -> None:
        """Brings [begin, end) into memory, as far as it is flushed; may wait for the disk."""
    def let_go(self, begin: int, end: int) -> None:
        """Has the system's memory let go of [begin, end), which nobody reads soon again; may take long."""
    def truncate_to(self, offset: int) -> None:
        """Cuts a slave's log where it parts from its master's; what is cut is kept in ``lakemq/cut``.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, something confirmed would go, or no request ends there.
        """
    def become_master(self, epoch: int, asks_replicas: bool) -> int:
        """Takes messages from here on; returns the offset at which the epoch begins.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE, an epoch as high was heard of.
        """
    def become_slave(self, epoch: int) -> None:
        """Takes no message from here on, and no bytes of a master before ``epoch``."""
    def ask_replicas(self, replicated: int | None) -> None:
        """Confirms nothing behind ``replicated`` before :meth:`replicated` says so; None: what is flushed."""
    def replicated(self, offset: int) -> None:
        """The replicas (on a slave: the master) hold the log up to ``offset`` for good."""

@final
class Dump:
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...

def verify(path: str | PathLike[str]) -> dict[str, Any]:
    """Reads every record and queue entry; changes nothing."""

def recover(path: str | PathLike[str]) -> dict[str, Any]:
    """Builds queues and index again from the log, as the store's owner.

    What the store has to say to its operator goes to the logger ``lakemq.store``.
    """

def dump(path: str | PathLike[str], *, from_offset: int = 0, limit: int | None = None) -> Dump:
    """Records of the log as JSON objects, in order."""

def java_hash(text: str) -> int: ...
def validate_topic(topic: str) -> None: ...
def validate_group(group: str) -> None: ...
def validate_tags(expression: str) -> None:
    """Refuses a tag expression that no reader may have: nothing would pass it.

    Raises:
        InvalidRequest: FILTER_ILLEGAL.
    """
