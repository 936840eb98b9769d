"""One HTTP request to the broker: pool, deadline, repeats (repeats.py), refusal to error.

Owns the urllib3 pool, and what an attempt without an answer comes to.

Invariants: a call lasts no longer than it was given, whatever the peer does; a repeat is the same request,
its Idempotency-Key included; "nothing was stored" is said only when no byte of it left or the broker said so.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    EmptyPoolError,
    HTTPError,
    LocationParseError,
    ProtocolError,
    ReadTimeoutError,
)

from lakemq.client.compression import check_compression, compressed
from lakemq.client.deadline import Deadline, pool_of, until
from lakemq.client.errors import OutcomeUnknown, from_problem, is_brokers_own
from lakemq.client.forks import tell_in_child
from lakemq.client.repeats import repeated
from lakemq.tls.trust import in_words
from store_native.errors import Closed, InvalidRequest, LakeMQError, Unavailable
from store_native.names import LOG_PARTED_HEADER, MAY_BE_BEHIND_HEADER

API = "/api/v1"
_CONNECT_TIMEOUT_S = 3.0
_NO_TIME_S = 0.001  # urllib3 takes no time-out of 0
NOT_OF_THE_SHAPE = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What building a result raises when the answer has another shape than the broker's."""

LONGEST_TIMEOUT_S = 86_400.0
LONGEST_RETRY_UNTIL_S = 366 * 86_400.0
MOST_CONNECTIONS = 10_000
_KEY = re.compile(r"[\x21-\x7e]{1,255}")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Answer:
    """A 2xx answer.

    Attributes:
        endpoint: Who gave it.
        result: Of a request that stores messages, what was built of the answer.
        from_slave: A slave gave it, or a promoted master that may lack the end of what was shown before: it
            may be behind.
        broker_name: Which of several brokers gave it; empty where the endpoint is one broker's.
        log_parted: A slave gave it whose log is not its master's.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    endpoint: str = ""
    result: Any = None
    from_slave: bool = False
    broker_name: str = ""
    log_parted: bool = False

    def read(self, build: Callable[[Any], Result]) -> Result:
        """Parses the body and builds a result of it.

        Raises:
            InvalidRequest: It is not JSON, or of another shape (not a LakeMQ broker, or cut on its way).
        """
        try:
            return build(json.loads(self.body))
        except NOT_OF_THE_SHAPE:
            raise self.malformed() from None

    def malformed(self) -> InvalidRequest:
        """Makes the error of an answer that no broker gives, or not in whole."""
        start = self.body[:80].decode("utf-8", "replace")
        detail = (
            f"{self.endpoint} answered what no LakeMQ broker says, or only a part of it "
            f"({len(self.body)} bytes): {start!r}"
        )
        return InvalidRequest("MALFORMED_BODY", detail, endpoint=self.endpoint)


class Transport:
    """Sends requests to one endpoint.

    Args:
        endpoint: ``http://host:port``; the scheme may be left out.
        timeout_s: How long one attempt may take in all, and a call too unless it has a
            ``retry_until``; what a long poll asks for comes on top.
        retries: How often a request that may be repeated is repeated within that time.
        pool_size: Connections kept open; more threads than that wait for one.
        retry_until: Every call repeats what may be repeated until so many seconds after its begin.
        pause: Waits between two attempts; given in tests.
        ca_file: Whose certificates are believed where the endpoint is an https one; None: the system's.
        compression: Of what stores messages, one of :data:`~lakemq.client.compression.COMPRESSIONS`.
        pool: The connections; given in tests.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL for what is no endpoint, a number without sense, or a ``ca_file``
            that cannot be used.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float,
        retries: int,
        pool_size: int,
        retry_until: float | None = None,
        ca_file: str | None = None,
        compression: str = "none",
        pause: Callable[[float], None] = time.sleep,
        pool: urllib3.HTTPConnectionPool | None = None,
    ) -> None:
        self.endpoint = normal_endpoint(endpoint)
        self.slave_answers = 0
        _check_between("timeout_s", timeout_s, 0, LONGEST_TIMEOUT_S)
        check_retry_until(retry_until)
        _check_between("pool_size", pool_size, 0, MOST_CONNECTIONS, kind=int)
        self.timeout_s = timeout_s
        self.retry_until = retry_until
        self._retries = retries
        self._pause = pause
        self._closed = False
        self._pool_size = pool_size
        self._ca_file = ca_file
        self._compression = check_compression(compression)
        self._pool = pool_of(self.endpoint, pool_size, ca_file) if pool is None else pool
        if pool is None:
            tell_in_child(self._connect_anew)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stores: Callable[[Any], object] | None = None,
        idempotency_key: str | None = None,
        retries: int | None = None,
        retry_until: float | None = None,
        wait_s: float = 0.0,
        once: bool = False,
        within_s: float | None = None,
        at_slaves: bool = False,
    ) -> Answer:
        """Sends one request and returns its 2xx answer.

        Args:
            method: The HTTP method.
            path: Below the endpoint, already quoted (see :func:`path_of`).
            query: Query parameters; those that are None are left out.
            body: The request's body.
            headers: Further headers.
            stores: It stores messages: doing it twice is not doing it once, unless it has a key. Builds
                the result: a 2xx of which none can be built, cut or not the broker's, is no answer.
            idempotency_key: Sent as the header of that name, the same with every repeat.
            retries: Another number of retries than the transport's own.
            retry_until: Repeats until so many seconds from now, whatever the number of retries.
            wait_s: How long the broker is asked to hold the request (long poll).
            once: Repeats nothing: the caller has another broker to ask.
            within_s: Less time than the call would have.
            at_slaves: Among the brokers of one name slaves take it too, when the master does not answer; to
                one broker it says nothing.

        Raises:
            Unavailable: No connection, no answer to what stores nothing, or the broker refused for
                now; nothing was stored.
            OutcomeUnknown: A request that stores left and no answer came, nor did one to its repeats.
            Closed: The client was closed; nothing was sent.
            InvalidRequest: A key or a time without sense; nothing was sent.
            LakeMQError: Whatever else the broker refused, as its own class.
        """
        given = dict(headers or {})
        check_retry_until(retry_until)
        if idempotency_key is not None:
            if not _KEY.fullmatch(idempotency_key):
                detail = f"an Idempotency-Key has 1 to 255 visible ASCII characters: {idempotency_key!a:.80}"
                raise InvalidRequest("ARGUMENT_ILLEGAL", detail)
            given["Idempotency-Key"] = idempotency_key
        retry_for_s = self.retry_until if retry_until is None else retry_until
        seconds = (self.timeout_s if retry_for_s is None else retry_for_s) + wait_s
        deadline = Deadline(seconds if within_s is None else min(seconds, within_s))
        if body is not None and stores is not None:
            body, encoding = compressed(body, self._compression)
            given |= encoding
        request = _Request(method, path + _query_string(query), body, given, stores, idempotency_key)
        most = None if retry_for_s is not None else self._retries if retries is None else retries
        return repeated(
            lambda: self._once(request, min(deadline.left(), self.timeout_s + wait_s)),
            str(request),
            key=idempotency_key,
            most=0 if once else most,
            deadline=deadline,
            pause=self._pause,
            endpoint=self.endpoint,
        )

    def close(self) -> None:
        """Closes the idle connections; what is under way ends, further calls raise Closed."""
        self._closed = True
        self._pool.close()

    def _connect_anew(self) -> None:
        """In a forked process: on its parent's connections it would read the parent's answers."""
        self._pool = pool_of(self.endpoint, self._pool_size, self._ca_file)

    def _once(self, request: _Request, seconds: float) -> Answer:
        if self._closed:
            raise Closed("CLIENT_CLOSED", "the client is closed")
        deadline = Deadline(seconds)
        timeout = urllib3.Timeout(connect=max(_NO_TIME_S, min(_CONNECT_TIMEOUT_S, seconds)))
        try:
            with until(deadline):
                answer = self._pool.urlopen(
                    request.method,
                    request.url,
                    body=request.body,
                    headers=request.headers,
                    timeout=timeout,
                    pool_timeout=max(_NO_TIME_S, seconds),  # type: ignore[arg-type]  # urllib3 waits for floats as well
                    redirect=False,
                )
        except ConnectTimeoutError as error:  # refused, unreachable, unknown host: no byte was sent
            raise self._unsent(f"no connection to {self.endpoint}: {_reason(error)}") from error
        except ClosedPoolError as error:  # closed by another thread since we looked
            raise Closed("CLIENT_CLOSED", "the client is closed") from error
        except EmptyPoolError as error:
            raise self._unsent(
                f"all {self._pool_size} connections to {self.endpoint} were in use for {seconds:.1f} s"
            ) from error
        except HTTPError as error:
            raise self._unanswered(request, f"got no answer: {_reason(error)}") from error
        if 200 <= answer.status < 300:
            behind = MAY_BE_BEHIND_HEADER in answer.headers
            self.slave_answers += behind
            parted = LOG_PARTED_HEADER in answer.headers
            given = Answer(
                *(answer.status, answer.headers, answer.data, self.endpoint),
                from_slave=behind,
                log_parted=parted,
            )
            return self._whole(request, given)
        refusal = from_problem(answer.status, answer.headers, answer.data)
        if request.stores is not None and answer.status >= 500 and not is_brokers_own(answer.data):
            raise self._unanswered(request, f"got no answer of the broker's: {refusal}") from refusal
        raise refusal

    def _whole(self, request: _Request, answer: Answer) -> Answer:
        if request.stores is None:
            return answer
        try:
            return replace(answer, result=answer.read(request.stores))
        except InvalidRequest as error:
            raise self._unanswered(request, f"got no whole answer: {error.detail}") from error

    def _unsent(self, detail: str) -> Unavailable:
        return Unavailable("SERVICE_NOT_AVAILABLE", detail, endpoint=self.endpoint, sent=False)

    def _unanswered(self, request: _Request, what: str) -> LakeMQError:
        detail = f"{request} at {self.endpoint} {what}"
        if request.stores is not None:
            return OutcomeUnknown.of(detail, request.idempotency_key, endpoint=self.endpoint, sent=True)
        return Unavailable("SERVICE_NOT_AVAILABLE", detail, endpoint=self.endpoint, sent=True)


@dataclass(frozen=True, slots=True)
class _Request:
    """What every attempt of one call sends."""

    method: str
    url: str
    body: bytes | None
    headers: dict[str, str]
    stores: Callable[[Any], object] | None
    idempotency_key: str | None

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


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


def check_retry_until(seconds: float | None) -> None:
    """Refuses what is no time to repeat a call for.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    if seconds is not None:
        _check_between("retry_until", seconds, 0, LONGEST_RETRY_UNTIL_S)


def path_of(*segments: str | int) -> str:
    """Joins segments below the API's prefix, each quoted so that no name can change the path.

    Raises:
        InvalidRequest: A segment is no text, empty, or ``.`` or ``..``, which HTTP libraries fold away.
    """
    for part in segments:
        if part in ("", ".", "..") or not isinstance(part, str | int):
            raise InvalidRequest("ARGUMENT_ILLEGAL", f"{part!r} is not a name")
    try:
        return "/".join([API, *(quote(str(part), safe="") for part in segments)])
    except UnicodeEncodeError as error:
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"{error.object!a} is not a name") from None


def _check_between(
    name: str, value: object, above: float, most: float, *, kind: type | UnionType = int | float
) -> None:
    is_number = isinstance(value, kind) and isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and above < value <= most):  # type: ignore[operator]  # a number by then
        a_number = "a whole number" if kind is int else "a number"
        what = f"{name}: is {value!r}, it is {a_number} above {above} and at most {most:,.0f}"
        raise InvalidRequest("ARGUMENT_ILLEGAL", what)


def _query_string(query: Mapping[str, Any] | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _reason(error: Exception) -> str:
    """The innermost cause in words, without urllib3's object addresses."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ProtocolError) and isinstance(cause.args[-1], Exception):
        cause = cause.args[-1]  # its text is a tuple's
    if isinstance(cause, ReadTimeoutError):
        return "timed out"
    if isinstance(cause, ssl.SSLError):
        return in_words(cause)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause)
