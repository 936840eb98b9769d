"""The errors of LakeMQ, sorted by what the caller should do.

    LakeMQError
    ├── InvalidRequest   fix the call: sending the same again gives the same answer
    ├── Unavailable      nothing was stored: try again later, or at another broker
    ├── DataCorrupt      stored bytes are not what was written: an operator must look
    ├── Closed           this store takes no more work: reopen it (a failed fsync is final)
    └── InternalError    a defect in LakeMQ: report it

The Rust store raises these classes, the broker maps their codes to HTTP in one place, and the
client builds the same class again from the code. Only a client can have one more,
``lakemq.client.OutcomeUnknown``: a send left and no answer came. They are plain Python classes that
pickle, and ``str(error)`` carries the code, because a Spark worker hands on nothing but text.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Closed",
    "DataCorrupt",
    "InternalError",
    "InvalidRequest",
    "LakeMQError",
    "Unavailable",
    "from_code",
]


class LakeMQError(Exception):
    """Any error of LakeMQ.

    Attributes:
        code: The name of the condition, RocketMQ's where it has one (``TOPIC_NOT_EXIST``).
        detail: One sentence for a person.
        context: What the caller may need to act: ``pointer``, ``index``, ``line``, ``limit``,
            ``retry_after_ms`` and the like. Values are JSON scalars.
    """

    retryable = False

    def __init__(self, code: str, detail: str, **context: Any) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.context = context

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.code, self.detail, self.context)


class InvalidRequest(LakeMQError):
    """The call is wrong; the same call will fail again."""


class Unavailable(LakeMQError):
    """Nothing was stored; the same call may succeed later or elsewhere."""

    retryable = True


class DataCorrupt(LakeMQError):
    """Stored bytes fail their checksum or break the format."""


class Closed(LakeMQError):
    """The store was closed, or a failed write or fsync of its log made it read-only for good."""


class InternalError(LakeMQError):
    """A defect in LakeMQ."""


_UNAVAILABLE = frozenset(
    {"SYSTEM_BUSY", "SERVICE_NOT_AVAILABLE", "NOT_MASTER", "DISK_FULL", "TOO_MANY_REQUESTS", "STORE_LOCKED"}
)
_CLOSED = frozenset({"STORE_CLOSED", "STORE_POISONED"})


def class_of(code: str) -> type[LakeMQError]:
    """Returns the error class a code belongs to."""
    if code in _UNAVAILABLE:
        return Unavailable
    if code in _CLOSED:
        return Closed
    if code == "DATA_CORRUPT":
        return DataCorrupt
    if code == "SYSTEM_ERROR":
        return InternalError
    return InvalidRequest


def from_code(code: str, detail: str, **context: Any) -> LakeMQError:
    """Builds the error of a code, as the store would have raised it."""
    return class_of(code)(code, detail, **context)


def _rebuild(cls: type[LakeMQError], code: str, detail: str, context: dict[str, Any]) -> LakeMQError:
    return cls(code, detail, **context)
