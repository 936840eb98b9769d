"""One HTTP request to the broker: pool, deadline, retry where it is safe, refusal to error.

Owns the urllib3 pool and the rule of when a request may be repeated. What never breaks: a request
that could store a message twice is repeated only if no byte of it left this process, or if it
carries an Idempotency-Key. Called by sending.py, reading.py and administering.py; many threads may
share one transport.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    ReadTimeoutError,
)

from lakemq.client.errors import OutcomeUnknown, from_problem
from store_native.errors import InvalidRequest, LakeMQError, Unavailable

API = "/api/v1"
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_CONNECT_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A 2xx answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Parses the body; raises InvalidRequest when it is not JSON (not a LakeMQ broker)."""
        try:
            return json.loads(self.body)
        except ValueError:
            start = self.body[:80].decode("utf-8", "replace")
            detail = f"the answer is not JSON, is this a LakeMQ broker? {start!r}"
            raise InvalidRequest("MALFORMED_BODY", detail) from None


class Transport:
    """Sends requests to one endpoint.

    Args:
        endpoint: ``http://host:port``; the scheme may be left out.
        timeout_s: How long one answer may take, beyond what a long poll asks for.
        retries: How often a request that may be repeated is repeated.
        pool_size: Connections kept open; more threads than that wait for one.
        pause: Waits between two attempts; given in tests.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float,
        retries: int,
        pool_size: int,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = normal_endpoint(endpoint)
        self._timeout_s = timeout_s
        self._retries = retries
        self._pause = pause
        # block=True: a thread beyond the pool waits instead of opening a connection it throws away.
        self._pool = urllib3.connection_from_url(self.endpoint, maxsize=pool_size, block=True, retries=False)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        retries: int | None = None,
        wait_s: float = 0.0,
    ) -> Answer:
        """Sends one request and returns its 2xx answer.

        Args:
            method: The HTTP method.
            path: Below the endpoint, already quoted (see :func:`path_of`).
            query: Query parameters; those that are None are left out.
            body: The request's body.
            headers: Further headers.
            repeatable: Doing it twice is the same as doing it once.
            retries: Another number of retries than the transport's own.
            wait_s: How long the broker is asked to hold the request (long poll).

        Raises:
            Unavailable: No connection, or the broker refused for now; nothing was stored.
            OutcomeUnknown: The request left but no answer came, and it may not be repeated.
            LakeMQError: Whatever else the broker refused, as its own class.
        """
        url = path + _query_string(query)
        allowed = self._retries if retries is None else retries
        attempt = 0
        while True:
            try:
                return self._once(method, url, body, headers or {}, wait_s, repeatable)
            except LakeMQError as error:
                if attempt >= allowed or not _may_repeat(error, repeatable):
                    raise
                self._pause(_pause_before(attempt, error))
                attempt += 1

    def close(self) -> None:
        """Closes the idle connections."""
        self._pool.close()

    def _once(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        wait_s: float,
        repeatable: bool,
    ) -> Answer:
        timeout = urllib3.Timeout(
            connect=min(_CONNECT_TIMEOUT_S, self._timeout_s), read=self._timeout_s + wait_s
        )
        try:
            answer = self._pool.urlopen(
                method, url, body=body, headers=dict(headers), timeout=timeout, redirect=False
            )
        except ConnectTimeoutError as error:  # refused, unreachable, unknown host: no byte was sent
            raise Unavailable(
                "SERVICE_NOT_AVAILABLE",
                f"no connection to {self.endpoint}: {_reason(error)}",
                endpoint=self.endpoint,
                sent=False,
            ) from error
        except HTTPError as error:
            detail = f"{method} {url} at {self.endpoint} got no answer: {_reason(error)}"
            if repeatable:
                raise Unavailable(
                    "SERVICE_NOT_AVAILABLE", detail, endpoint=self.endpoint, sent=True
                ) from error
            raise OutcomeUnknown(detail=detail, endpoint=self.endpoint, sent=True) from error
        if not 200 <= answer.status < 300:
            raise from_problem(answer.status, answer.headers, answer.data)
        return Answer(answer.status, answer.headers, answer.data)


def normal_endpoint(endpoint: str) -> str:
    """Checks an endpoint and returns it as ``scheme://host:port`` without a last slash.

    Raises:
        InvalidRequest: It is not an http or https address.
    """
    text = endpoint.strip()
    if "://" not in text:
        text = f"http://{text}"
    try:
        url = urllib3.util.parse_url(text)
    except LocationParseError:
        url = None
    whole = url is not None and url.host and url.scheme in ("http", "https")
    if url is None or not whole or url.path not in (None, "/") or url.query or url.fragment or url.auth:
        raise InvalidRequest(
            "ARGUMENT_ILLEGAL", f"{endpoint!r} is not an endpoint such as http://127.0.0.1:8090"
        )
    return text.removesuffix("/")


def path_of(*segments: str | int) -> str:
    """Joins segments below the API's prefix, each quoted so that no name can change the path.

    Raises:
        InvalidRequest: A segment is empty, ``.`` or ``..``, which HTTP libraries fold away.
    """
    parts = [str(segment) for segment in segments]
    for part in parts:
        if part in ("", ".", ".."):
            raise InvalidRequest("ARGUMENT_ILLEGAL", f"{part!r} is not a name")
    return "/".join([API, *(quote(part, safe="") for part in parts)])


def _query_string(query: Mapping[str, Any] | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _may_repeat(error: LakeMQError, repeatable: bool) -> bool:
    if not isinstance(error, Unavailable):
        return False
    return repeatable or error.context.get("sent") is False


def _pause_before(attempt: int, error: LakeMQError) -> float:
    """Grows from 0.1 s, half of it random so that clients do not return together; the broker's own
    Retry-After counts when it is longer, up to the longest pause."""
    own = _FIRST_PAUSE_S * (1 << attempt) * random.uniform(0.5, 1.0)
    asked = float(error.context.get("retry_after_ms") or 0) / 1000
    return min(max(own, asked), _LONGEST_PAUSE_S)


def _reason(error: Exception) -> str:
    """The innermost cause in words, without urllib3's object addresses."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ReadTimeoutError):
        return "timed out"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause)
