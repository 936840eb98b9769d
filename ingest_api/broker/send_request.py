"""What a producer asks of the broker, whatever protocol it came by.

Owns the forms a payload may have and the fields beside a raw one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class PayloadKind(IntEnum):
    """How the messages of a send are encoded.

    Attributes:
        RAW: The payload is one message's body; its fields are a :class:`MessageFields`.
        JSON: One message, or ``{"messages": [...]}``.
        NDJSON: A message a line.
        ARROW: An Arrow IPC stream, a message a row.
    """

    RAW = 0
    JSON = 1
    NDJSON = 2
    ARROW = 3


@dataclass(slots=True)
class MessageFields:
    """The fields of a message whose body is the payload."""

    tags: str | None = None
    keys: list[str] | None = None
    properties: list[tuple[str, str]] = field(default_factory=list)
    sharding_key: str | None = None
    queue_id: int | None = None
    flag: int = 0
    delay_level: int = 0
    message_id: str | None = None


@dataclass(slots=True)
class SendRequest:
    """A send without its payload.

    Attributes:
        topic: Checked by the store.
        kind: How the payload is encoded.
        client: Address and port of the producer, stored as the messages' born host.
        idempotency_key: The same key within the idempotence window is stored once.
        full_results: The answer names each message's place, not only each queue's.
        fields: Only for PayloadKind.RAW.
        order_version: Of the list of an ordered topic's brokers that the sender went by; None: it says none.
    """

    topic: str
    kind: PayloadKind = PayloadKind.JSON
    client: tuple[str, int] | None = None
    idempotency_key: str | None = None
    full_results: bool = False
    fields: MessageFields | None = None
    order_version: int | None = None
