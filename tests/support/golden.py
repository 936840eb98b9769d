"""Golden files: what a released version wrote, and every later one opens.

Owns where they lie and what is looked at in a store.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from store_native import Reader, Store

GOLDEN = Path(__file__).parents[1] / "golden"
# Small files; and what is in them never grows old.
OPTIONS: Any = {
    "commitlog_file_size": 1 << 16,
    "consumequeue_file_entries": 50,
    "index_slots": 101,
    "index_entries": 400,
    "retention_hours": 878_400,
    "idempotence_hours": 878_400,
}


def look(store: Store | Reader) -> dict[str, Any]:
    """What a store shows of its topic, for users and for the format."""
    queues = store.queues("orders")
    return {
        "broker_name": store.broker_name,
        "store_id": store.store_id,
        "queues": [list(bounds) for bounds in queues],
        "messages": {
            str(queue_id): _messages(store, queue_id, min_offset) for queue_id, min_offset, _, _ in queues
        },
        "odd": [message["queue_offset"] for message in _messages(store, 1, 0, "odd")],
        "by_key": [message["queue_offset"] for message in json.loads(store.query_json("orders", "order-13"))],
    }


def _messages(store: Store | Reader, queue_id: int, offset: int, tags: str = "*") -> list[dict[str, Any]]:
    part = store.read_json("orders", queue_id, offset, max_messages=1000, max_bytes=1 << 26, tags=tags)
    assert not part.damaged
    found: list[dict[str, Any]] = json.loads(part.messages)
    for message in found:
        if len(message["body"]) > 64:
            message["body"] = "sha256 " + hashlib.sha256(message["body"].encode()).hexdigest()
    return found
