"""The spans of a handler's calls, where they are made.

Owns their names, attributes, parents and links, and the context that what a verdict sends carries on.

Invariants: a span is the current one while the handler runs, on its thread or in its task; the parent of a
message's is what the message's own properties say (`traceparent`), and the batch's span where they say
nothing. Whatever goes wrong with a span, the call is made.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.tracing import provider
from jobs.tracing.current_span import NO_SPAN, CurrentSpan
from lakemq.handler import DeliveredMessage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

_log = logging.getLogger(__name__)

MOST_LINKS = 128
"""Messages of a vectorised call that its span is linked to: what the SDK keeps by default."""


class CallSpans:
    """No spans: of calls that nobody traces."""

    def of_message(self, message: DeliveredMessage) -> CurrentSpan:
        """The span of the call with a message."""
        return NO_SPAN

    def of_batch(self, piece: pa.RecordBatch) -> CurrentSpan:
        """The span of a vectorised handler's call."""
        return NO_SPAN


NO_SPANS = CallSpans()


@dataclass(frozen=True)
class TracedBatch:
    """What the calls of a batch say of it; travels to where they are made.

    Attributes:
        group: The group.
        context: Of the batch's span, as a message's properties would carry it.
    """

    group: str = ""
    context: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, group: str) -> TracedBatch:
        """The one whose span is the current one."""
        return cls(group, carried_on())

    @contextmanager
    def calls(self) -> Iterator[CallSpans]:
        """The spans of calls in this process, which are sent when the block ends."""
        tracer = provider.tracer()
        if tracer is None:
            yield NO_SPANS
            return
        try:
            yield _TracedCalls(tracer, self)
        finally:
            provider.send()


NOT_TRACED = TracedBatch()


def carried_on() -> dict[str, str]:
    """The current span as properties of a message that it causes; empty without one."""
    carrier: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        try:
            from opentelemetry import propagate

            propagate.inject(carrier)
        except Exception:  # noqa: BLE001 - propagators are foreign code
            _log.exception("a span's context is not carried on")
            return {}
    return carrier


class _TracedCalls(CallSpans):
    def __init__(self, tracer: Tracer, batch: TracedBatch) -> None:
        self._tracer = tracer
        self._batch = batch.context
        self._common: dict[str, str | int] = {
            "messaging.system": "lakemq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": batch.group,
        }

    def of_message(self, message: DeliveredMessage) -> CurrentSpan:
        return CurrentSpan(lambda: self._of_message(message))

    def of_batch(self, piece: pa.RecordBatch) -> CurrentSpan:
        return CurrentSpan(lambda: self._of_batch(piece))

    def _of_message(self, message: DeliveredMessage) -> tuple[Span, Context]:
        topic = message.topic
        attributes = self._common | {
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(message.queue_id),
            "messaging.message.id": message.message_id,
            "lakemq.broker.name": message.broker_name,
            "lakemq.queue.offset": message.queue_offset,
            "lakemq.attempt": message.attempt,
        }
        context = _extracted(message.properties)
        links: list[Link] = []
        if _span_context(context).is_valid:
            links = _links([self._batch])
        else:
            context = _extracted(self._batch, context)
        return self._started(f"process {topic}", context, attributes, links)

    def _of_batch(self, piece: pa.RecordBatch) -> tuple[Span, Context]:
        topics = pc.unique(piece.column("topic")).to_pylist()
        attributes = self._common | {"messaging.batch.message_count": piece.num_rows}
        name = "process"
        if len(topics) == 1:
            name = f"process {topics[0]}"
            attributes["messaging.destination.name"] = topics[0]
        properties = piece.column("properties").slice(0, MOST_LINKS).to_pylist()
        links = _links([dict(pairs or ()) for pairs in properties])
        return self._started(name, _extracted(self._batch), attributes, links)

    def _started(
        self, name: str, context: Context, attributes: Mapping[str, str | int], links: Sequence[Link]
    ) -> tuple[Span, Context]:
        from opentelemetry.trace import SpanKind, set_span_in_context

        span = self._tracer.start_span(
            name, context, kind=SpanKind.CONSUMER, attributes=attributes, links=links
        )
        return span, set_span_in_context(span, context)


def _extracted(properties: Mapping[str, str], context: Context | None = None) -> Context:
    """The context that properties carry, with nothing of this process's own."""
    from opentelemetry import propagate
    from opentelemetry.context import Context

    return propagate.extract(properties, Context() if context is None else context)


def _span_context(context: Context) -> SpanContext:
    from opentelemetry.trace import get_current_span

    return get_current_span(context).get_span_context()


def _links(carriers: Sequence[Mapping[str, str]]) -> list[Link]:
    """Links to what the carriers name, each once."""
    from opentelemetry.trace import Link

    found = {}
    for carrier in carriers:
        if carrier:
            context = _span_context(_extracted(carrier))
            if context.is_valid:
                found[context.trace_id, context.span_id] = context
    return [Link(context) for context in found.values()]
