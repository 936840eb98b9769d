"""The examples of the OpenAPI document, by operation.

Owns the values only.

Invariants: each request here is one a broker takes, and each answer has the members it gives; a test sends
them.
"""

from __future__ import annotations

from typing import Any

_ID = "7F0000010000000000000000000001C8"
_TOPIC = {
    "topic": "orders",
    "topic_id": "0A01",
    "read_queue_nums": 4,
    "write_queue_nums": 4,
    "perm": 6,
    "attributes": {"team": "billing"},
    "system": False,
}
_GROUP = {
    "group": "billing",
    "retry_max_times": 3,
    "consume_enable": True,
    "consume_broadcast_enable": True,
    "attributes": {},
}
_OFFSETS = [{"topic": "orders", "queue_id": 1, "offset": 0}]
_MESSAGE = {
    "message_id": _ID,
    "offset_message_id": "7F00000100001F9A0000000000000400",
    "topic": "orders",
    "broker_name": "broker-a",
    "queue_id": 1,
    "queue_offset": 0,
    "physical_offset": 1024,
    "keys": ["17"],
    "tags": "NEW",
    "body": "order 17",
    "properties": {},
    "flag": 0,
    "born_timestamp": 1767225600000,
    "store_timestamp": 1767225600001,
    "born_host": "127.0.0.1:52114",
    "store_host": "127.0.0.1:8090",
    "reconsume_times": 0,
}
_BROKER = {
    "cluster": "DefaultCluster",
    "broker_name": "broker-a",
    "addresses": {"0": "http://127.0.0.1:8090"},
    "epoch": 1,
}

PARAMETERS: dict[str, Any] = {
    "topic": "orders",
    "group": "billing",
    "queue_id": 1,
    "offset": 0,
    "key": "17",
    "timestamp": 1767225600000,
    "message_id": _ID,
    "name": "broker-b",
    "broker_id": 0,
    "owner": "driver-1",
    "batch": "5f2c41d0.17",
}
"""By name; what they name is made by the examples of the requests."""

REQUESTS: dict[str, dict[str, Any]] = {
    "put_topic": {"application/json": {"read_queue_nums": 4, "write_queue_nums": 4}},
    "put_group": {"application/json": {"retry_max_times": 3}},
    "send_messages": {
        "application/json": {"body": "order 17", "tags": "NEW", "keys": ["17"], "queue_id": 1},
        "application/x-ndjson": '{"body":"order 18","keys":["18"]}\n{"body":"order 19","keys":["19"]}\n',
        "application/octet-stream": "order 20",
    },
    "commit_offsets": {"application/json": {"offsets": _OFFSETS}},
    "count_batch": {"application/json": {"messages": {"ACK": 99, "RETRY": 1}, "seconds": 1.2}},
    "offer_offsets": {
        "application/json": {"offsets": [{**_OFFSETS[0], "topic_id": "0A01", "seen": 0}]},
    },
    "reset_offsets": {
        "application/json": {
            "topic": "orders",
            "to": "timestamp",
            "timestamp": 1767225600000,
            "dry_run": True,
        }
    },
    "acquire_lease": {"application/json": {"owner": "driver-1", "ttl_ms": 30000}},
    "register_broker": {
        "application/json": {
            "cluster": "DefaultCluster",
            "address": "http://127.0.0.1:8091",
            "data_version": "1",
            "topics": [{"topic": "payments", "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6}],
        }
    },
}

ANSWERS: dict[str, Any] = {
    "send_messages": {
        "status": "SEND_OK",
        **{name: _MESSAGE[name] for name in list(_MESSAGE)[:6]},
        "duplicate": False,
    },
    "pull_messages": {
        "status": "FOUND",
        "next_offset": 1,
        "min_offset": 0,
        "max_offset": 1,
        "suggested_broker_id": 0,
        "messages": [_MESSAGE],
    },
    "query_messages": {"messages": [_MESSAGE]},
    "get_message": _MESSAGE,
    "list_topics": {"topics": [_TOPIC], "next": None},
    "get_topic": _TOPIC,
    "put_topic": _TOPIC,
    "list_queues": [
        {
            "queue_id": 0,
            "min_offset": 0,
            "max_offset": 1,
            "confirmed_offset": 1,
            "epochs": [{"epoch": 1, "first_offset": 0, "at_or_before": False}],
        }
    ],
    "offset_by_time": {"offset": 0},
    "list_groups": {"groups": [_GROUP], "next": None},
    "get_group": _GROUP,
    "put_group": _GROUP,
    "get_group_offsets": {"offsets": _OFFSETS, "next": None},
    "commit_offsets": {"offsets": _OFFSETS},
    "offer_offsets": {"offsets": _OFFSETS},
    "reset_offsets": {
        "dry_run": True,
        "redelivered": 5,
        "skipped": 0,
        "queues": [
            {
                "topic": "orders",
                "queue_id": 1,
                "from_offset": 12,
                "to_offset": 7,
                "redelivered": 5,
                "skipped": 0,
            }
        ],
    },
    "acquire_lease": {"epoch": 1, "expires_at": 1767225630000},
    "get_route": {
        "queues": [
            {
                "broker_name": "broker-a",
                "read_queue_nums": 4,
                "write_queue_nums": 4,
                "perm": 6,
                "order_conf": None,
            }
        ],
        "brokers": [_BROKER],
        "order_conf": None,
    },
    "get_cluster": {
        "cluster": "DefaultCluster",
        "broker_name": "broker-a",
        "broker_id": 0,
        "store_id": "3f1c",
        "epoch": 1,
        "version": "0.1.0",
        "flush": "sync",
        "delay_levels_ms": [1000, 5000],
        "max_message_bytes": 4194304,
        "brokers": [_BROKER],
    },
    "register_broker": {"topics_wanted": False, "master_address": None, "master_replication_address": None},
    "healthz": {"status": "alive"},
    "readyz": {
        "status": "ready",
        "flush": "sync",
        "recovery": {"clean": True},
        "replication": {
            "role": "sync-master",
            "epoch": 1,
            "in_reach": True,
            "following": False,
            "lag_bytes": None,
            "slaves": [{"broker_id": 1, "lag_bytes": 0, "lag_s": 0.0, "bytes_per_s": 104857.6}],
        },
    },
}
"""Of the answer 200 (and 201)."""
