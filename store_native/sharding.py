"""Which broker a sharding key has among those that have such queues.

Owns the rule, which brokers and clients share. Pure.

Invariants: the same key and the same queues give the same broker, in every process.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence


def message_queues(queues: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns (broker name, queue id) of all writable queues, so that brokers alternate."""
    pairs = [(name, queue_id) for name, count in queues.items() for queue_id in range(count)]
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def of_sharding_key(sharding_key: str, brokers: Sequence[str]) -> str:
    """Returns the broker of a sharding key among brokers in a fixed order.

    The broker's own choice of a queue is another hash of the key, so that all its queues are used.
    """
    return brokers[zlib.crc32(b"broker/" + sharding_key.encode()) % len(brokers)]


def in_order(queues: Mapping[str, int]) -> list[str]:
    """Returns the broker of each queue, in the order that :func:`of_sharding_key` takes."""
    return [name for name, _ in message_queues(queues)]
