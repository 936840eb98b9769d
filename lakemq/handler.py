"""What a consumer's handler sees and says: the message, the verdict, the marks a handler may carry.

Owns the types users write handlers with; it imports nothing of Spark, so a handler's module can be tested
alone.

Invariants: a handler that returns nothing has acknowledged.

    from lakemq.handler import Verdict

    def handle(message):
        if message.json()["amount"] < 0:
            return Verdict.dead("negative amount")

What a handler's work causes is sent with its verdict, once however often the handler is called:

    from lakemq.handler import Outgoing, Verdict

    def handle(message):
        order = message.json()
        return Verdict.ack(send=Outgoing("invoices", {"order": order["id"]}, keys=[str(order["id"])]))

So are rows for a Delta table: `Verdict.ack(rows=TableRow("invoices", {"order": 17, "amount": 9.5}))`.

A handler may be a coroutine function, and it may be a class: one instance is made in each worker, its
`open()` is called before the first message and its `close()` when the worker ends.

    class Billing:
        def open(self):
            self.pool = connect()

        def __call__(self, message):
            self.pool.charge(message.json())

        def close(self):
            self.pool.close()
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa

from lakemq.duration import parse_ms

if TYPE_CHECKING:
    from lakemq.client.message import Body

__all__ = [
    "DeliveredMessage",
    "Outgoing",
    "TableRow",
    "Verdict",
    "handler",
    "is_thread_safe",
    "is_vectorised",
    "vectorised",
]

Handler = TypeVar("Handler", bound=Callable[..., Any])

_MARK = "__lakemq_vectorised__"
_THREAD_SAFE = "__lakemq_thread_safe__"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that a verdict sends.

    Attributes:
        topic: Where it goes, one of those the group was started with (`--send-to`).
        body: Bytes, text, or a JSON value (mapping or list).
        tags: The tag consumers filter by; one per message.
        keys: What the message can be found by.
        properties: Free text properties.
        sharding_key: Messages with the same one go to the same queue.
        delay_level: 1..18, delivered after that level's delay; 0 is at once.
    """

    topic: str
    body: Body
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    delay_level: int = 0


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row for a Delta table, which a verdict writes.

    Attributes:
        table: One of the names that the group was started with (`--write-to NAME=PLACE`).
        values: By column; a column that is left out is null. Whole numbers for BYTE to BIGINT, numbers for
            FLOAT and DOUBLE, Decimal or whole numbers for DECIMAL, str, bool, bytes, date, datetime with a
            zone for TIMESTAMP and without one for TIMESTAMP_NTZ; mappings for structs and maps, lists for
            arrays.
    """

    table: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one message.

    `Verdict.ACK` is done (so is returning None), `Verdict.ack(send=..., rows=...)` is done, sends messages
    and writes rows;
    `Verdict.retry()` brings the message back after the group's delay, `Verdict.retry(4)` after delay
    level 4, `Verdict.retry("30s")` after the store's first delay level of at least 30 s;
    `Verdict.dead("why")` gives the message up at once.
    """

    kind: str
    delay_level: int | None = None
    delay_ms: int | None = None
    reason: str | BaseException | None = None
    send: tuple[Outgoing, ...] = ()
    rows: tuple[TableRow, ...] = ()

    ACK: ClassVar[Verdict]
    RETRY: ClassVar[Verdict]

    @classmethod
    def ack(
        cls,
        *,
        send: Outgoing | Iterable[Outgoing] | None = None,
        rows: TableRow | Iterable[TableRow] | None = None,
    ) -> Verdict:
        """Acknowledges the message, sends others and writes rows.

        They are written with the outcome and go on from there, each once: an outcome that does not count,
        since its worker or its driver died, sends and writes nothing.

        Args:
            send: the messages, 100 at most, of 4 MiB together at most; None sends nothing.
            rows: the rows, 1,000 at most, of 4 MiB together at most; None writes nothing.
        """
        return cls(
            "ACK",
            send=(send,) if isinstance(send, Outgoing) else tuple(send or ()),
            rows=(rows,) if isinstance(rows, TableRow) else tuple(rows or ()),
        )

    @classmethod
    def retry(
        cls, after: int | str | timedelta | None = None, *, reason: str | BaseException | None = None
    ) -> Verdict:
        """Brings the message back later.

        Args:
            after: a delay level, a delay (a duration with its unit, `"30s"`, or a timedelta), or None for
                the group's own delay.
            reason: a text for the ledger, or the exception that says it.
        """
        if after is None:
            return cls("RETRY", reason=reason)
        if isinstance(after, bool) or (isinstance(after, int) and after < 1):
            raise ValueError(f"{after!r} is not a delay level: levels start at 1")
        if isinstance(after, int):
            return cls("RETRY", delay_level=after, reason=reason)
        delay_ms = parse_ms(after) if isinstance(after, str) else round(after.total_seconds() * 1000)
        return cls("RETRY", delay_ms=delay_ms, reason=reason)

    @classmethod
    def dead(cls, reason: str | BaseException) -> Verdict:
        """Gives the message up: it goes to the dead letters without another attempt.

        Args:
            reason: a text for the ledger, or the exception that says it; cut after 2,000 characters.
        """
        return cls("DEAD", reason=reason)


Verdict.ACK = Verdict("ACK")
Verdict.RETRY = Verdict("RETRY")


def vectorised(handler: Handler) -> Handler:
    """Marks a handler that takes a `pyarrow.RecordBatch` instead of one message.

    An annotation says the same: `def handle(batch: pyarrow.RecordBatch)`.
    """
    setattr(handler, _MARK, True)
    return handler


def handler(*, thread_safe: bool = True) -> Callable[[Handler], Handler]:
    """Says of a handler what cannot be seen of it.

    Args:
        thread_safe: whether several threads of a worker may call it at a time. False has the messages of a
            worker handled one after the other, on one thread.
    """

    def mark(function: Handler) -> Handler:
        setattr(function, _THREAD_SAFE, thread_safe)
        return function

    return mark


def is_thread_safe(handler: Callable[..., Any]) -> bool:
    """Says whether several threads may call a handler at a time: yes, unless it is marked."""
    called = getattr(handler, "__call__", None)  # noqa: B004 - of a class, or of an instance
    return bool(getattr(handler, _THREAD_SAFE, getattr(called, _THREAD_SAFE, True)))


def is_vectorised(handler: Callable[..., Any]) -> bool:
    """Says whether a handler takes batches, by its mark or the annotation of its first parameter."""
    if getattr(handler, _MARK, False):
        return True
    first_parameter = 1 if inspect.isclass(handler) else 0  # behind self
    called = getattr(handler, "__call__", None) if inspect.isclass(handler) else handler  # noqa: B004
    code = getattr(called, "__code__", None)
    annotations = getattr(called, "__annotations__", {})
    first = None
    if code is not None and code.co_argcount > first_parameter:
        first = annotations.get(code.co_varnames[first_parameter])
    # Under `from __future__ import annotations` it is text: the last word of the dotted name counts.
    return first is pa.RecordBatch or (
        isinstance(first, str) and first.rpartition(".")[2].strip("'\"") == "RecordBatch"
    )


class BatchColumns:
    """The columns of a batch as Python lists, each made when it is first asked for.

    The messages of a batch share it, so a handler pays only for the fields it looks at.
    """

    __slots__ = ("_batch", "_lists")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._lists: dict[str, list[Any]] = {}

    def values(self, name: str) -> list[Any]:
        """One column's values; times as epoch milliseconds, a map as a list of pairs."""
        values = self._lists.get(name)
        if values is None:
            column = self._batch.column(name)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            values = self._lists[name] = column.to_pylist()
        return values


class DeliveredMessage:
    """One message as a handler gets it. Times are epoch milliseconds.

    `topic`, `queue_id` and `queue_offset` are those of the original message, on a retry too; `attempt`
    is 1 for the first delivery.
    """

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: BatchColumns, row: int) -> None:
        self._columns = columns
        self._row = row

    def _value(self, name: str) -> Any:
        return self._columns.values(name)[self._row]

    @property
    def message_id(self) -> str:
        """The id, the same on every attempt."""
        return str(self._value("message_id"))

    @property
    def topic(self) -> str:
        """The topic of the original message."""
        return str(self._value("topic"))

    @property
    def broker_name(self) -> str:
        """The broker of the original message."""
        return str(self._value("broker_name"))

    @property
    def queue_id(self) -> int:
        """The queue of the original message."""
        return int(self._value("queue_id"))

    @property
    def queue_offset(self) -> int:
        """The original message's position in its queue."""
        return int(self._value("queue_offset"))

    @property
    def attempt(self) -> int:
        """1 for the first delivery, 2 for the first retry."""
        return int(self._value("attempt"))

    @property
    def reconsume_times(self) -> int:
        """How often the message came back: attempt - 1."""
        return self.attempt - 1

    @property
    def keys(self) -> tuple[str, ...]:
        """KEYS."""
        return tuple(self._value("keys") or ())

    @property
    def tags(self) -> str | None:
        """TAGS, None without."""
        value: str | None = self._value("tags")
        return value

    @property
    def body(self) -> bytes:
        """The body as sent."""
        value: bytes = self._value("body")
        return value

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 show as replacement characters."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Parses the body as JSON; raises ValueError when it is not."""
        return json.loads(self.body)

    @property
    def properties(self) -> dict[str, str]:
        """The other properties."""
        return dict(self._value("properties") or ())

    @property
    def born_timestamp(self) -> int:
        """When the producer made the message."""
        return int(self._value("born_timestamp"))

    @property
    def store_timestamp(self) -> int:
        """When the broker stored what this attempt read."""
        return int(self._value("store_timestamp"))

    def __repr__(self) -> str:
        return (
            f"DeliveredMessage({self.topic!r}, queue {self.queue_id} offset {self.queue_offset}, "
            f"attempt {self.attempt})"
        )
