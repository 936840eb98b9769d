"""What the documents of several routes share: names, problems, messages, pages.

Owns the OpenAPI fragments, the checked types of parameters, and the rule that a query parameter nobody
reads is refused, as a typing error in it would otherwise be a silent default.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from ingest_api.broker.flush_wait import SendStatus
from store_native import validate_group, validate_topic
from store_native.errors import InvalidRequest
from store_native.order_conf import MOST_CHARACTERS, OrderConf

ARROW_TYPE = "application/vnd.apache.arrow.stream"
TOPIC_PATTERN = "^[%|a-zA-Z0-9_-]+$"
GROUP_PATTERN = "^[%|a-zA-Z0-9_-]+$"
MAX_LONG = (1 << 63) - 1


def ref(name: str) -> dict[str, str]:
    """Points to a shared schema."""
    return {"$ref": f"#/components/schemas/{name}"}


PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. A refusal means that nothing was stored or changed.",
    "required": ["type", "title", "status", "detail", "instance", "code", "retryable", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string", "examples": ["TOPIC_NOT_EXIST"]},
        "retryable": {"type": "boolean"},
        "request_id": {"type": "string"},
        "retry_after_ms": {"type": "integer"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "detail": {"type": "string"},
                    "pointer": {"type": "string", "description": "JSON pointer into the body."},
                    "parameter": {"type": "string"},
                    "header": {"type": "string"},
                    "index": {"type": "integer", "description": "Number of the message, from 0."},
                    "line": {"type": "integer", "description": "Line of the body, from 1."},
                },
            },
        },
    },
}

PROBLEM_RESPONSE: dict[str, Any] = {
    "description": "A problem; see code.",
    "content": {"application/problem+json": {"schema": ref("Problem")}},
}

PROBLEMS: dict[int | str, dict[str, Any]] = {"default": PROBLEM_RESPONSE}

_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}

MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["message_id", "offset_message_id", "topic", "broker_name", "queue_id", "queue_offset"],
    "properties": {
        "message_id": _TEXT,
        "offset_message_id": _TEXT,
        "topic": _TEXT,
        "broker_name": _TEXT,
        "queue_id": _INTEGER,
        "queue_offset": _INTEGER,
        "physical_offset": _INTEGER,
        "keys": {"type": "array", "items": _TEXT},
        "tags": {"type": ["string", "null"]},
        "body": {"type": "string", "description": "When the body is UTF-8."},
        "body_base64": {"type": "string", "description": "When it is not."},
        "properties": {"type": "object", "additionalProperties": _TEXT},
        "flag": _INTEGER,
        "born_timestamp": _INTEGER,
        "store_timestamp": _INTEGER,
        "born_host": _TEXT,
        "store_host": _TEXT,
        "reconsume_times": _INTEGER,
    },
}


def _topic(name: str) -> str:
    validate_topic(name)
    return name


def _group(name: str) -> str:
    validate_group(name)
    return name


# The store's own check raises TOPIC_ILLEGAL, not a ValueError: pydantic lets it pass through to
# problems.py, so a bad name has one code wherever it is.
CheckedTopic = Annotated[str, AfterValidator(_topic)]
CheckedGroup = Annotated[str, AfterValidator(_group)]
TopicPath = Annotated[CheckedTopic, Path(json_schema_extra={"pattern": TOPIC_PATTERN})]
GroupPath = Annotated[CheckedGroup, Path(json_schema_extra={"pattern": GROUP_PATTERN, "maxLength": 120})]
QueueIdPath = Annotated[int, Path(ge=0, le=(1 << 31) - 1)]


DEFAULT_LIMIT, MAX_LIMIT = 1_000, 10_000
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Entries of a page at most.")]
PageMark = Annotated[
    str,
    Query(alias="next", max_length=512, description="The `next` of the page before."),
]


def noun_router(tag: str) -> APIRouter:
    """Makes the router of one noun: its problems are documented, unknown parameters refused."""
    tags: list[str | Enum] = [tag]
    return APIRouter(tags=tags, responses=PROBLEMS, dependencies=[Depends(_refuse_unknown_parameters)])


async def _refuse_unknown_parameters(request: Request) -> None:
    """Called by FastAPI before each route of a noun."""
    if not request.query_params:
        return
    route = request.scope.get("route")
    known = sorted(_query_parameters(route.dependant)) if isinstance(route, APIRoute) else []
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            known_ones = f"known here: {', '.join(known)}" if known else "this request takes none"
            raise _illegal_parameter(name, f"no such parameter; {known_ones}")
        if name in seen:
            raise _illegal_parameter(name, "is given twice")
        seen.add(name)


def _query_parameters(dependant: Dependant) -> set[str]:
    own = {parameter.alias for parameter in dependant.query_params}
    return own.union(*(_query_parameters(inner) for inner in dependant.dependencies))


def _illegal_parameter(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{name}: {reason}", parameter=name)


class Strict(BaseModel):
    """A request body; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


Attributes = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=r"^[^\x00-\x20\x7f]{1,128}$")],
        Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{0,1024}$")],
    ],
    Field(
        max_length=64,
        description="At most 64: names of 128, values of 1,024 characters, no control.",
    ),
]


class OrderConfText(Strict):
    """The brokers of an ordered topic, each with its write queues."""

    version: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_LONG,
            description="Of two lists the higher one's counts. At most 100 years above the broker's clock in "
            "epoch milliseconds.",
        ),
    ]
    brokers: Annotated[
        str,
        Field(
            pattern=r"^[a-zA-Z0-9_-]+:[0-9]+(;[a-zA-Z0-9_-]+:[0-9]+)*$",
            max_length=MOST_CHARACTERS,
            examples=["broker-a:4;broker-b:4"],
        ),
    ]

    @classmethod
    def of(cls, conf: OrderConf | None) -> Self | None:
        """Renders a list."""
        return None if conf is None else cls.model_construct(version=conf.version, brokers=conf.brokers)

    def parsed(self) -> OrderConf:
        """Reads the list.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL.
        """
        return OrderConf.parse(self.version, self.brokers)


class Pending(BaseModel):
    """The change is in the log but not as safe as asked yet; it will be seen when it is."""

    status: Literal["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"]


PENDING: dict[int | str, dict[str, Any]] = {202: {"model": Pending}}


def created(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Documents the answer to a PUT that made something."""
    return {201: {"model": model, "description": "It is new."}}


def json_answer(data: bytes, status: int = 200) -> Response:
    """Answers with JSON that the store rendered."""
    return Response(data, status, media_type="application/json")


def page_of(noun: str, name: str, found: bytes, limit: int) -> bytes:
    """Renders a page of a list.

    Args:
        noun: The list's member, such as ``topics``.
        name: The member of an entry that it is ordered by, and its mark.
        found: What the store rendered: one entry more than the page holds, if there is one.
        limit: Entries of the page.
    """
    entries = json.loads(found)
    more = len(entries) > limit
    mark = entries[limit - 1][name] if more else None
    return json.dumps({noun: entries[:limit], "next": mark}, ensure_ascii=False).encode()


def pending(status: SendStatus) -> Response:
    """Answers a change that is stored, but not as safely as asked: 202, and a header says what is missing."""
    return Response(
        f'{{"status":"{status}"}}', 202, {"X-LakeMQ-Status": status}, media_type="application/json"
    )
