"""A span that is the current one while a block runs.

Owns its start, its end, and what the block's failure says in it.

Invariants: whatever goes wrong with the span, the block runs, and what it raises goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    Start = Callable[[], tuple[Span, Context]]

_log = logging.getLogger(__name__)


class CurrentSpan:
    """A block's span, or none where nobody traces.

    Args:
        start: Starts it, in a context that is the current one for the block; None: there is no span.
    """

    def __init__(self, start: Start | None = None) -> None:
        self._start = start
        self._span: Span | None = None
        self._token: Any = None

    def __enter__(self) -> Self:
        if self._start is not None:
            self._guarded(self._begin, self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._start is not None:
            self._guarded(self._end, error)

    def put(self, attributes: Mapping[str, str | int]) -> None:
        """Puts attributes on it."""
        if self._span is not None:
            self._guarded(self._span.set_attributes, attributes)

    def fail(self, error_type: str, text: str, trace: str) -> None:
        """Says that the block failed, with an exception's type, text and traceback."""
        if self._span is not None:
            self._guarded(self._fail, self._span, error_type, text, trace)

    def _begin(self, start: Start) -> None:
        from opentelemetry.context import attach

        self._span, context = start()
        self._token = attach(context)

    def _end(self, error: BaseException | None) -> None:
        from opentelemetry.context import detach
        from opentelemetry.trace import StatusCode

        if self._token is not None:
            detach(self._token)
        if self._span is not None:
            if error is not None:
                self._span.record_exception(error)
                self._span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
            self._span.end()

    @staticmethod
    def _fail(span: Span, error_type: str, text: str, trace: str) -> None:
        from opentelemetry.trace import StatusCode

        what = {"exception.type": error_type, "exception.message": text, "exception.stacktrace": trace}
        span.set_attribute("error.type", error_type)
        span.add_event("exception", what)
        span.set_status(StatusCode.ERROR, f"{error_type}: {text}")

    @staticmethod
    def _guarded(step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception:  # noqa: BLE001 - samplers and processors of spans are foreign code
            _log.exception("a span is lost")


NO_SPAN = CurrentSpan()
