"""The span of a batch, at the driver.

Owns its name and attributes: OpenTelemetry's conventions for messaging, and what begins with `lakemq.`
where they have no name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.tracing import provider
from jobs.tracing.current_span import NO_SPAN, CurrentSpan

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


class BatchSpan:
    """The span of a batch that is under way."""

    def __init__(self, span: CurrentSpan) -> None:
        self._span = span

    def came_to(self, messages: int, retried: int, given_up: int) -> None:
        """Notes what the batch came to.

        Args:
            messages: handled in it.
            retried: of them come again.
            given_up: of them are DEAD or DROPPED.
        """
        self._span.put(
            {
                "messaging.batch.message_count": messages,
                "lakemq.batch.acknowledged": messages - retried - given_up,
                "lakemq.batch.retried": retried,
                "lakemq.batch.given_up": given_up,
            }
        )


@contextmanager
def batch_span(group: str, topics: Sequence[str], query_id: str, batch_id: int) -> Iterator[BatchSpan]:
    """A span from the batch's plan to its report; it is the current one meanwhile.

    Args:
        group: the group.
        topics: those it names; it may have more by a pattern.
        query_id, batch_id: of the batch, as the ledger has them.
    """
    tracer = provider.tracer()
    if tracer is None:
        yield BatchSpan(NO_SPAN)
        return
    from opentelemetry.trace import SpanKind, set_span_in_context

    attributes: dict[str, str | int] = {
        "messaging.system": "lakemq",
        "messaging.operation.name": "batch",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": group,
        "lakemq.query.id": query_id,
        "lakemq.batch.id": batch_id,
    }
    if len(topics) == 1:
        attributes["messaging.destination.name"] = topics[0]

    def begin() -> tuple[Span, Context]:
        span = tracer.start_span(f"batch {group}", kind=SpanKind.CONSUMER, attributes=attributes)
        return span, set_span_in_context(span)

    try:
        with CurrentSpan(begin) as span:
            yield BatchSpan(span)
    finally:
        provider.send()
