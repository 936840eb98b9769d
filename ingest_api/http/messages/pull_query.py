"""Reads what a pull asks for: path, query string, Accept.

Owns names, defaults and bounds of a pull's parameters; pure.

Invariants: a parameter that is not known or not implemented is refused, not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote_plus

from ingest_api.broker.pull_service import PullRequest
from store_native import validate_group, validate_topic
from store_native.errors import InvalidRequest

ARROW = b"application/vnd.apache.arrow.stream"

JSON_MAX, JSON_DEFAULT = 10_000, 32
JSON_MAX_BYTES, JSON_DEFAULT_BYTES = 16 << 20, 256 << 10
ARROW_MAX, ARROW_DEFAULT = 1_000_000, 10_000
ARROW_MAX_BYTES, ARROW_DEFAULT_BYTES = 64 << 20, 16 << 20
MAX_OFFSET = (1 << 63) - 1

_ARROW_ONLY = frozenset({"end_offset", "columns"})
_WEIGHT = re.compile(rb"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
_KNOWN = _ARROW_ONLY | {"offset", "max", "max_bytes", "wait_ms", "tags", "sql", "group"}


def read_pull(
    topic: str, queue_id: str, query: bytes, headers: Iterable[tuple[bytes, bytes]], max_wait_ms: int
) -> PullRequest:
    """Checks a pull.

    Args:
        topic: The path's segment.
        queue_id: The path's segment.
        query: The query string.
        headers: ASGI's; only Accept counts.
        max_wait_ms: The longest long poll.

    Raises:
        InvalidRequest: TOPIC_ILLEGAL, GROUP_ILLEGAL, ARGUMENT_ILLEGAL or NOT_IMPLEMENTED.
    """
    validate_topic(topic)
    given = parse_query(query)
    arrow = any(
        name == b"accept" and ARROW in value.lower() and _takes_arrow(value) for name, value in headers
    )
    if not given.keys() <= _KNOWN:
        name = next(iter(given.keys() - _KNOWN))
        raise _illegal(name, f"no such parameter; known are {', '.join(sorted(_KNOWN))}")
    if "sql" in given:
        raise InvalidRequest(
            "NOT_IMPLEMENTED", "SQL filters are not implemented yet; use tags", parameter="sql"
        )
    if not arrow and (only := given.keys() & _ARROW_ONLY):
        raise _illegal(min(only), "only for Accept: application/vnd.apache.arrow.stream")
    if "offset" not in given:
        raise _illegal("offset", "is missing")
    group = given.get("group", "")
    if group:
        validate_group(group)
    columns = given.get("columns")
    return PullRequest(
        topic=topic,
        queue_id=integer("queue_id", queue_id, 0, (1 << 31) - 1),
        offset=integer("offset", given["offset"], 0, MAX_OFFSET),
        arrow=arrow,
        max_messages=_bounded(
            given, "max", ARROW_DEFAULT if arrow else JSON_DEFAULT, ARROW_MAX if arrow else JSON_MAX
        ),
        max_bytes=_bounded(
            given,
            "max_bytes",
            ARROW_DEFAULT_BYTES if arrow else JSON_DEFAULT_BYTES,
            ARROW_MAX_BYTES if arrow else JSON_MAX_BYTES,
        ),
        wait_ms=integer("wait_ms", given["wait_ms"], 0, max_wait_ms) if "wait_ms" in given else 0,
        tags=given.get("tags") or "*",
        group=group,
        end_offset=integer("end_offset", given["end_offset"], 0, MAX_OFFSET)
        if "end_offset" in given
        else None,
        columns=[column.strip() for column in columns.split(",")] if columns else None,
    )


def parse_query(query: bytes) -> dict[str, str]:
    """Splits a query string; a name given twice is refused, because one of the two would be lost."""
    found: dict[str, str] = {}
    if not query:
        return found
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if "%" in part or "+" in part:
            name, value = unquote_plus(name), unquote_plus(value)
        if name in found:
            raise _illegal(name, "is given twice")
        if name:
            found[name] = value
    return found


def integer(name: str, text: str, low: int, high: int) -> int:
    """Reads an integer within bounds; raises InvalidRequest ARGUMENT_ILLEGAL."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high):
        raise _illegal(name, f"must be an integer from {low} to {high}")
    return int(text)


def _takes_arrow(accept: bytes) -> bool:
    """Says whether Accept names Arrow, and not with a weight of 0, or below JSON's."""
    weights: dict[bytes, float] = {}
    for entry in accept.lower().split(b","):
        media, *parameters = (part.strip() for part in entry.split(b";"))
        weight = next((p[2:].strip() for p in parameters if p[:2] == b"q="), b"1")
        weights[media] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights.get(ARROW, 0.0) > 0 and weights[ARROW] >= weights.get(b"application/json", 0.0)


def _bounded(given: dict[str, str], name: str, default: int, high: int) -> int:
    return integer(name, given[name], 1, high) if name in given else default


def _illegal(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{name}: {reason}", parameter=name)
