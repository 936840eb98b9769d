"""Which codes an operation may answer: the problem responses of the OpenAPI document.

Owns the table operation -> codes. responses/problems.py owns code -> status; a code of its table that no
operation claims here belongs to all of them.
"""

from __future__ import annotations

from typing import Any

from ingest_api.http.responses.problems import NO_SUCH_REQUEST, PROBLEM_TYPE, STATUS
from ingest_api.http.schemas import ref

_TOPIC = ("TOPIC_ILLEGAL", "TOPIC_NOT_EXIST")
_QUEUE = (*_TOPIC, "QUEUE_NOT_EXIST")
_GROUP = ("GROUP_ILLEGAL", "GROUP_NOT_EXIST")
_WITH_BODY = ("MALFORMED_BODY", "REQUEST_TIMEOUT", "REQUEST_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
_STORING = ("STORE_POISONED", "DISK_FULL", "NOT_MASTER")
_CHANGE = (*_WITH_BODY, *_STORING)

CODES: dict[str, tuple[str, ...]] = {
    "send_messages": (
        *_QUEUE,
        *_CHANGE,
        "MESSAGE_ILLEGAL",
        "MESSAGE_TOO_LARGE",
        "IDEMPOTENCY_KEY_REUSED",
        "WRONG_BROKER",
    ),
    "pull_messages": (*_QUEUE, "GROUP_ILLEGAL", "FILTER_ILLEGAL"),
    "query_messages": _TOPIC,
    "get_message": (*_TOPIC, "MESSAGE_NOT_EXIST", "MESSAGE_ILLEGAL"),
    "list_topics": (),
    "get_topic": _TOPIC,
    "put_topic": (*_TOPIC, *_CHANGE, "TOPIC_CONFLICT"),
    "delete_topic": (*_TOPIC, *_CHANGE),
    "list_queues": _TOPIC,
    "offset_by_time": _QUEUE,
    "list_groups": (),
    "get_group": _GROUP,
    "put_group": (*_GROUP, *_CHANGE),
    "delete_group": (*_GROUP, *_CHANGE, "LEASE_CONFLICT"),
    "get_group_offsets": _GROUP,
    "commit_offsets": (*_GROUP, *_QUEUE, *_CHANGE, "OFFSET_ILLEGAL", "LEASE_CONFLICT"),
    "offer_offsets": (*_GROUP, *_QUEUE, *_CHANGE, "OFFSET_ILLEGAL", "LEASE_CONFLICT"),
    "count_batch": (*_GROUP, "LEASE_CONFLICT"),
    "reset_offsets": (*_GROUP, *_QUEUE, *_CHANGE, "OFFSET_ILLEGAL", "LEASE_CONFLICT"),
    "acquire_lease": (*_GROUP, *_CHANGE, "LEASE_CONFLICT"),
    "release_lease": (*_GROUP, *_CHANGE),
    "get_route": _TOPIC,
    "get_cluster": (),
    "get_replication": (),
    "promote": (),
    "register_broker": ("TOPIC_ILLEGAL", *_WITH_BODY),
    "unregister_broker": ("TOPIC_ILLEGAL", "BROKER_NOT_EXIST", *_WITH_BODY),
    "healthz": (),
    "readyz": ("STORE_POISONED",),
    "get_metrics": (),
}
"""What an operation may answer beside the codes that every one may."""

OF_ALL = sorted({*STATUS, NO_SUCH_REQUEST} - {code for codes in CODES.values() for code in codes})


def codes_of(operation_id: str) -> list[str]:
    """Returns every code an operation may answer."""
    return sorted({*CODES[operation_id], *OF_ALL})


def problems_of(operation_id: str) -> dict[str, Any]:
    """Documents the problems of an operation: one schema, the codes of its own named first."""
    own = ", ".join(f"{code} ({STATUS[code]})" for code in sorted(CODES[operation_id], key=_by_status))
    description = f"A problem; act on code and retryable. Of this operation: {own}." if own else "A problem."
    code = {"properties": {"code": {"enum": codes_of(operation_id)}}}
    return {
        "description": description,
        "content": {PROBLEM_TYPE: {"schema": {"allOf": [ref("Problem"), code]}}},
    }


def _by_status(code: str) -> tuple[int, str]:
    return STATUS[code], code
