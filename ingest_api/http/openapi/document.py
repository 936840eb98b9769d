"""Completes the OpenAPI document that FastAPI derives from the routes.

Owns the path items FastAPI cannot derive, because the two raw ASGI functions take no parameters it could
read, and what holds for the whole document: licence, server, the place of problems and examples.

Invariants: an operation's id is its function's name and stays.
"""

from __future__ import annotations

from typing import Any

from ingest_api.http.messages.pull_query import (
    ARROW_DEFAULT,
    ARROW_DEFAULT_BYTES,
    ARROW_MAX,
    ARROW_MAX_BYTES,
    JSON_DEFAULT,
    MAX_OFFSET,
)
from ingest_api.http.openapi import examples
from ingest_api.http.openapi.problems import problems_of
from ingest_api.http.schemas import (
    ARROW_TYPE,
    GROUP_PATTERN,
    MAX_LONG,
    MESSAGE,
    PROBLEM,
    TOPIC_PATTERN,
    ref,
)
from store_native.names import ORDER_VERSION_HEADER

Document = dict[str, Any]


_TAGS = {
    "messages": "Send and read.",
    "topics": "What topics there are.",
    "queues": "The bounds of queues, and offsets by time.",
    "groups": "Consumer groups, their committed offsets, and who drives them.",
    "routes": "Which broker holds a topic.",
    "cluster": "This broker and the others.",
    "replication": "What this broker is to the others of its name.",
    "brokers": "Registration with the name server inside this broker.",
    "health": "For what starts and watches the process.",
    "metrics": "For Prometheus.",
}


def completed(document: Document) -> Document:
    """Returns the document with everything in it that is not derived from the routes."""
    document["info"]["license"] = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    document["servers"] = [{"url": "/", "description": "The broker that serves this document."}]
    document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
    _add_raw_paths(document)
    for item in document["paths"].values():
        for operation in item.values():
            name = operation["operationId"]
            operation["responses"]["default"] = problems_of(name)
            _add_examples(operation, name)
    return document


def _add_examples(operation: Document, name: str) -> None:
    for parameter in operation.get("parameters", []):
        if parameter.get("required") and parameter["name"] in examples.PARAMETERS:
            parameter["example"] = examples.PARAMETERS[parameter["name"]]
    for media, value in examples.REQUESTS.get(name, {}).items():
        operation["requestBody"]["content"][media]["examples"] = {"example": {"value": value}}
    if name in examples.ANSWERS:
        for status in {"200", "201"} & operation["responses"].keys():
            content = operation["responses"][status]["content"]["application/json"]
            content["examples"] = {"example": {"value": examples.ANSWERS[name]}}


def _add_raw_paths(document: Document) -> None:
    paths = document.setdefault("paths", {})
    paths.setdefault("/api/v1/topics/{topic}/messages", {})["post"] = _produce()
    paths.setdefault("/api/v1/topics/{topic}/queues/{queue_id}/messages", {})["get"] = _pull()
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update({"Problem": PROBLEM, "Message": MESSAGE, **_SEND_SCHEMAS})


def _parameter(name: str, place: str, schema: Document, text: str, required: bool = False) -> Document:
    return {
        "name": name,
        "in": place,
        "required": required or place == "path",
        "schema": schema,
        "description": text,
    }


_TOPIC = _parameter(
    "topic", "path", {"type": "string", "pattern": TOPIC_PATTERN, "maxLength": 127}, "The topic."
)
_TEXT = {"type": "string"}
_INT32 = {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}
_OFFSET = {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}

_NEW_MESSAGE: Document = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "body": {"type": "string", "minLength": 1},
        "body_base64": {"type": "string", "format": "byte"},
        "body_json": {"description": "Any JSON value; its text is stored as written."},
        "tags": _TEXT,
        "keys": {"type": "array", "items": {"type": "string", "pattern": r"^\S+$"}},
        "properties": {"type": "object", "additionalProperties": {"type": "string"}},
        "sharding_key": _TEXT,
        "queue_id": _INT32,
        "flag": {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1},
        "delay_level": _INT32,
        "message_id": {"type": "string", "minLength": 1},
        "wait_store_ok": {"type": "boolean", "default": True},
        "born_timestamp": _OFFSET,
        "reconsume_times": _INT32,
    },
    "oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}, {"required": ["body_json"]}],
}

_STATUS = {"enum": ["SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"]}

_SCHEDULED = {
    "const": True,
    "description": "Delayed: queue and offset are those of SCHEDULE_TOPIC_XXXX; absent otherwise.",
}

_SEND_SCHEMAS: Document = {
    "NewMessage": _NEW_MESSAGE,
    "SendResult": {
        "type": "object",
        "required": [
            "status",
            "message_id",
            "offset_message_id",
            "topic",
            "broker_name",
            "queue_id",
            "queue_offset",
            "duplicate",
        ],
        "properties": {
            "status": _STATUS,
            "message_id": _TEXT,
            "offset_message_id": _TEXT,
            "topic": _TEXT,
            "broker_name": _TEXT,
            "queue_id": _INT32,
            "queue_offset": _OFFSET,
            "duplicate": {"type": "boolean"},
            "scheduled": _SCHEDULED,
        },
    },
    "BatchResult": {
        "type": "object",
        "required": ["status", "count", "queues", "duplicate"],
        "properties": {
            "status": _STATUS,
            "count": {"type": "integer"},
            "queues": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["queue_id", "first_queue_offset", "count"],
                    "properties": {
                        "queue_id": _INT32,
                        "first_queue_offset": _OFFSET,
                        "count": {"type": "integer"},
                        "scheduled": _SCHEDULED,
                    },
                },
            },
            "duplicate": {"type": "boolean"},
            "results": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Only with ?results=full.",
            },
        },
    },
    "PullResult": {
        "type": "object",
        "required": ["status", "next_offset", "min_offset", "max_offset", "suggested_broker_id", "messages"],
        "properties": {
            "status": {"enum": ["FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL"]},
            "next_offset": _OFFSET,
            "min_offset": _OFFSET,
            "max_offset": _OFFSET,
            "suggested_broker_id": _INT32,
            "damaged": {
                "type": "array",
                "description": "Ranges [from, to) of queue offsets whose bytes fail their checksum.",
                "items": {"type": "array", "items": _OFFSET, "minItems": 2, "maxItems": 2},
            },
            "messages": {"type": "array", "items": ref("Message")},
        },
    },
}

_RAW_HEADERS = (
    ("X-LakeMQ-Tags", _TEXT, "Raw bodies: tags."),
    ("X-LakeMQ-Keys", _TEXT, "Raw bodies: keys, separated by spaces."),
    ("X-LakeMQ-Sharding-Key", _TEXT, "Raw bodies: messages of one sharding key share a queue."),
    ("X-LakeMQ-Queue-Id", _INT32, "Raw bodies: the queue."),
    ("X-LakeMQ-Delay-Level", _INT32, "Raw bodies: the delay level, 1 to 18."),
    ("X-LakeMQ-Message-Id", {"type": "string", "minLength": 1}, "Raw bodies: the client's own id."),
    ("X-LakeMQ-Flag", {"type": "integer"}, "Raw bodies: the user's flag."),
)


def _produce() -> Document:
    answers = {"oneOf": [ref("SendResult"), ref("BatchResult")]}
    headers = [
        _parameter(
            "Idempotency-Key",
            "header",
            {"type": "string", "pattern": "^[!-~]{1,255}$"},
            "A repeat with the same key answers the first result and stores nothing.",
        ),
        _parameter(
            "Prefer", "header", _TEXT, "respond-async: one-way, 202 as soon as the message is appended."
        ),
        _parameter(
            "Content-Encoding",
            "header",
            {"enum": ["gzip", "zstd", "identity"]},
            "How the body is compressed.",
        ),
        _parameter(
            ORDER_VERSION_HEADER,
            "header",
            {"type": "integer", "minimum": 0, "maximum": MAX_LONG},
            "Messages with a sharding key: the version of the ordered topic's list that they are sent by. "
            "A broker with an older one takes them; else WRONG_BROKER refuses what is another's by its own.",
        ),
        *(_parameter(name, "header", schema, text) for name, schema, text in _RAW_HEADERS),
    ]
    return {
        "tags": ["messages"],
        "operationId": "send_messages",
        "summary": "Send one message or many",
        "description": (
            "The Content-Type chooses the form; any type not listed makes the body itself the message, with "
            "its fields in X-LakeMQ-* headers (X-LakeMQ-Property-<name> for properties). Many messages are "
            "stored all or none. delay_ms, deliver_at and CloudEvents answer 501 until they are implemented."
        ),
        "parameters": [
            _TOPIC,
            _parameter(
                "results", "query", {"enum": ["full", "queues"]}, "full: one result for each message."
            ),
            *headers,
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [
                            ref("NewMessage"),
                            {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["messages"],
                                "properties": {
                                    "messages": {"type": "array", "minItems": 1, "items": ref("NewMessage")}
                                },
                            },
                        ]
                    }
                },
                "application/x-ndjson": {
                    "schema": {"type": "string", "description": "One NewMessage a line."}
                },
                ARROW_TYPE: {"schema": {"type": "string", "format": "binary"}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "responses": {
            "200": {
                "description": "Stored, as safe as asked.",
                "content": {"application/json": {"schema": answers}},
            },
            "202": {
                "description": "Stored, less safe than asked (see status), or one-way.",
                "headers": {
                    "Preference-Applied": {"schema": _TEXT, "description": "respond-async: it was one-way."}
                },
                "content": {"application/json": {"schema": answers}},
            },
        },
    }


def _pull() -> Document:
    return {
        "tags": ["messages"],
        "operationId": "pull_messages",
        "summary": "Pull messages of a queue",
        "description": (
            "Accept: application/vnd.apache.arrow.stream answers one Arrow stream, "
            "with the other fields in X-LakeMQ-* headers. "
            f"Arrow's defaults are max={ARROW_DEFAULT} (at most {ARROW_MAX}) and "
            f"max_bytes={ARROW_DEFAULT_BYTES} (at most {ARROW_MAX_BYTES})."
        ),
        "parameters": [
            _TOPIC,
            _parameter("queue_id", "path", _INT32, "The queue."),
            _parameter("offset", "query", _OFFSET, "Where to read.", required=True),
            _parameter(
                "max",
                "query",
                {"type": "integer", "minimum": 1, "default": JSON_DEFAULT},
                "Messages at most.",
            ),
            _parameter(
                "max_bytes",
                "query",
                {"type": "integer", "minimum": 1},
                "Bytes at most, but one message always.",
            ),
            _parameter(
                "wait_ms",
                "query",
                {"type": "integer", "minimum": 0, "default": 0},
                "Hold the pull until a message comes.",
            ),
            _parameter("tags", "query", {"type": "string", "default": "*"}, "A || B, or * for all."),
            _parameter(
                "group", "query", {"type": "string", "pattern": GROUP_PATTERN}, "Who pulls; for the metrics."
            ),
            _parameter("sql", "query", _TEXT, "Answers 501 until SQL filters are implemented."),
            _parameter("end_offset", "query", _OFFSET, "Arrow only: read below it."),
            _parameter("columns", "query", _TEXT, "Arrow only: the columns wanted, comma-separated."),
        ],
        "responses": {
            "200": {
                "description": "What was found, or why nothing was.",
                "content": {
                    "application/json": {"schema": ref("PullResult")},
                    ARROW_TYPE: {"schema": {"type": "string", "format": "binary"}},
                },
            },
        },
    }
