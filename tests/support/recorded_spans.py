"""A TracerProvider of this process for a block, whose spans are kept in memory.

Owns the put-back of the process's own: OpenTelemetry lets a program set one once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@contextmanager
def recorded_spans(*further: SpanProcessor) -> Iterator[InMemorySpanExporter]:
    """Has the program's own provider set.

    Args:
        further: processors beside the one that keeps the spans.

    Yields:
        What has the spans that ended.
    """
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    for processor in (*further, SimpleSpanProcessor(spans)):
        provider.add_span_processor(processor)
    before = trace._TRACER_PROVIDER  # noqa: SLF001 - it cannot be set back otherwise
    trace._TRACER_PROVIDER = provider  # noqa: SLF001
    try:
        yield spans
    finally:
        trace._TRACER_PROVIDER = before  # noqa: SLF001
