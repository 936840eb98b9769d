"""The one place where errors become HTTP: RFC 9457 ``application/problem+json``.

Owns the table code -> status and the shape of a problem.

Invariants: a caller sees a code, a sentence, a request id and what it may do next, and never a stack.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.http.responses.allowed_methods import allowed_methods
from store_native.errors import InternalError, InvalidRequest, LakeMQError

log = logging.getLogger("lakemq.errors")

PROBLEM_TYPE = "application/problem+json"

STATUS = {
    "MALFORMED_BODY": 400,
    "MALFORMED_REQUEST": 400,
    "NO_PERMISSION": 403,
    "TOPIC_NOT_EXIST": 404,
    "QUEUE_NOT_EXIST": 404,
    "GROUP_NOT_EXIST": 404,
    "MESSAGE_NOT_EXIST": 404,
    "BROKER_NOT_EXIST": 404,
    "REQUEST_TIMEOUT": 408,
    "LEASE_CONFLICT": 409,
    "TOPIC_CONFLICT": 409,
    "WRONG_BROKER": 409,
    "BROKER_CONFLICT": 409,
    "OFFSET_ILLEGAL": 409,
    "MESSAGE_TOO_LARGE": 413,
    "REQUEST_TOO_LARGE": 413,
    "TARGET_TOO_LONG": 414,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "EXPECTATION_FAILED": 417,
    "MESSAGE_ILLEGAL": 422,
    "TOPIC_ILLEGAL": 422,
    "GROUP_ILLEGAL": 422,
    "FILTER_ILLEGAL": 422,
    "ARGUMENT_ILLEGAL": 422,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "TOO_MANY_REQUESTS": 429,
    "HEADERS_TOO_LARGE": 431,
    "SYSTEM_ERROR": 500,
    "DATA_CORRUPT": 500,
    "NOT_IMPLEMENTED": 501,
    "HTTP_VERSION_NOT_SUPPORTED": 505,
    "SYSTEM_BUSY": 503,
    "SERVICE_NOT_AVAILABLE": 503,
    "NOT_MASTER": 503,
    "STORE_CLOSED": 503,
    "STORE_POISONED": 503,
    "STORE_LOCKED": 503,
    "DISK_FULL": 507,
}
"""Codes of the error tree; a code that is not here is a defect and answers 500."""

NO_SUCH_REQUEST = "REQUEST_CODE_NOT_SUPPORTED"
"""RocketMQ's name for a request nobody handles: an unknown path (404) or method (405)."""

CODE_IN_SCOPE = "lakemq.problem_code"
"""Where the access log finds the code of a problem that one of FastAPI's routes answered."""

_RETRY_AFTER_MS = {"DISK_FULL": 10_000, "TOO_MANY_REQUESTS": 500}
_DEFAULT_RETRY_AFTER_MS = 1_000
_OF_ONE_ERROR = ("pointer", "index", "line", "header", "parameter")


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal, ready to send."""

    status: int
    code: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


def new_request_id() -> str:
    """Makes the id that joins an answer to its log line."""
    return secrets.token_hex(8)


def problem_of(error: LakeMQError, instance: str, request_id: str) -> Problem:
    """Renders an error.

    Args:
        error: What went wrong; its context becomes ``errors[]`` and further members.
        instance: The path asked for.
        request_id: See :func:`new_request_id`.
    """
    context = dict(error.context)
    given = context.pop("errors", None)
    if given is None and any(name in context for name in _OF_ONE_ERROR):
        given = [{"detail": error.detail, **{n: context[n] for n in _OF_ONE_ERROR if n in context}}]
    if given is not None:
        context["errors"] = given
    if error.retryable:
        context.setdefault("retry_after_ms", _RETRY_AFTER_MS.get(error.code, _DEFAULT_RETRY_AFTER_MS))
    return _render(
        STATUS.get(error.code, 500), error.code, error.detail, error.retryable, instance, request_id, context
    )


def _render(
    status: int,
    code: str,
    detail: str,
    retryable: bool,
    instance: str,
    request_id: str,
    more: Mapping[str, Any],
) -> Problem:
    document = {
        **more,
        "type": f"urn:lakemq:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        "retryable": retryable,
        "request_id": request_id,
    }
    body = json.dumps(document, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
    ]
    retry_after_ms = more.get("retry_after_ms")
    if isinstance(retry_after_ms, int):
        headers.append((b"retry-after", b"%d" % max(1, -(-retry_after_ms // 1000))))
    return Problem(status, code, headers, body)


def unexpected(error: BaseException, instance: str, request_id: str) -> LakeMQError:
    """Turns a defect into the answer a client may see; the stack goes to the log only."""
    log.error(
        "unexpected error", exc_info=error, extra={"fields": {"request_id": request_id, "path": instance}}
    )
    return InternalError("SYSTEM_ERROR", "the broker failed on this request; its log has the cause")


def install(app: FastAPI, metrics: BrokerMetrics) -> None:
    """Registers the handlers of everything that FastAPI's routes may raise."""

    def answer(request: Request, problem: Problem, extra: Mapping[str, str] | None = None) -> Response:
        metrics.refused(problem.code)
        request.scope[CODE_IN_SCOPE] = problem.code
        headers = {name.decode(): value.decode() for name, value in problem.headers}
        return Response(problem.body, problem.status, headers={**headers, **(extra or {})})

    async def on_lakemq(request: Request, error: Exception) -> Response:
        assert isinstance(error, LakeMQError)
        return answer(request, problem_of(error, request.url.path, new_request_id()))

    async def on_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(request, problem_of(_of_validation(error.errors()), request.url.path, new_request_id()))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = f"{request.method} {request.url.path} is not a request this broker knows"
        status = error.status_code
        if status in (404, 405) and (allowed := allowed_methods(app.router.routes, request.scope)):
            # The router stops at the first route of a path, and does not know the raw doors.
            problem = _render(405, NO_SUCH_REQUEST, detail, False, request.url.path, new_request_id(), {})
            return answer(request, problem, {"Allow": allowed})
        problem = _render(
            error.status_code, NO_SUCH_REQUEST, detail, False, request.url.path, new_request_id(), {}
        )
        return answer(request, problem, error.headers)

    async def on_unexpected(request: Request, error: Exception) -> Response:
        request_id = new_request_id()
        return answer(
            request, problem_of(unexpected(error, request.url.path, request_id), request.url.path, request_id)
        )

    app.add_exception_handler(LakeMQError, on_lakemq)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_unexpected)


def _of_validation(found: Sequence[Any]) -> InvalidRequest:
    """Maps pydantic's findings: JSON pointers into the body, names of parameters elsewhere."""
    errors = [_of_finding(finding) for finding in found]
    if any(finding.get("type") == "json_invalid" for finding in found):
        return InvalidRequest("MALFORMED_BODY", f"the body is not JSON: {errors[0]['detail']}", errors=errors)
    first = errors[0]
    where = first.get("pointer") or first.get("parameter") or "the body"
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{where}: {first['detail']}", errors=errors)


def _of_finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    place, *path = [str(part) for part in finding.get("loc", ("body",))]
    detail = str(finding.get("msg", "illegal"))
    cause = (finding.get("ctx") or {}).get("error")
    if finding.get("type") == "json_invalid" and cause is not None:
        return {"detail": str(cause)}
    if place == "body":
        return {"pointer": "".join(f"/{_escaped(part)}" for part in path), "detail": detail}
    return {"parameter": ".".join(path), "in": place, "detail": detail}


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
