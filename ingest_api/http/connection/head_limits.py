"""The refusals of a connection that costs more than the settings allow.

Owns their codes and words; uvicorn_protocol.py sees when one is due.
"""

from __future__ import annotations

from ingest_api.process_settings import HttpSettings
from store_native.errors import InvalidRequest, Unavailable


def target_too_long(bounds: HttpSettings) -> InvalidRequest:
    """Refuses a path and query string beyond ``max_target_bytes``."""
    limit = bounds.max_target_bytes
    return InvalidRequest("TARGET_TOO_LONG", f"path and query string have at most {limit} bytes", limit=limit)


def head_too_large(bounds: HttpSettings) -> InvalidRequest:
    """Refuses headers, trailers or chunk extensions beyond ``max_header_bytes``."""
    limit = bounds.max_header_bytes
    return InvalidRequest("HEADERS_TOO_LARGE", f"headers have at most {limit} bytes", limit=limit)


def too_many_headers(bounds: HttpSettings) -> InvalidRequest:
    """Refuses more than ``max_headers``."""
    limit = bounds.max_headers
    return InvalidRequest("HEADERS_TOO_LARGE", f"a request has at most {limit} headers", limit=limit)


def head_too_late(bounds: HttpSettings) -> InvalidRequest:
    """Refuses a head that did not arrive within ``head_timeout_s``."""
    limit = bounds.head_timeout_s
    return InvalidRequest(
        "REQUEST_TIMEOUT", f"the head did not arrive within {limit:g} s; nothing was stored", limit_s=limit
    )


def too_many_pipelined(bounds: HttpSettings) -> Unavailable:
    """Refuses a request behind ``max_pipelined`` that wait for their answers."""
    limit = bounds.max_pipelined
    detail = f"{limit} requests of this connection wait for their answer already; this one was not looked at"
    return Unavailable("TOO_MANY_REQUESTS", detail, reason="pipelined")
