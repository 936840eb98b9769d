"""The span of a batch: from its plan to its report, with what it came to."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from jobs.tracing.batch_span import batch_span
from jobs.tracing.call_spans import TracedBatch
from tests.support.recorded_spans import recorded_spans


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_batch_is_one_span_that_its_calls_are_told_of() -> None:
    with recorded_spans() as spans, batch_span("billing", ["orders"], "q1", 7) as span:
        inside = trace.get_current_span().get_span_context()
        told = TracedBatch.here("billing")
        span.came_to(10, 2, 1)
    (ended,) = spans.get_finished_spans()
    assert ended.context == inside
    assert told.context.keys() == {"traceparent"}
    assert told.context["traceparent"].startswith(f"00-{inside.trace_id:032x}-{inside.span_id:016x}-")
    assert (ended.name, ended.kind, ended.parent) == ("batch billing", SpanKind.CONSUMER, None)
    assert attributes(ended) == {
        "messaging.system": "lakemq",
        "messaging.operation.name": "batch",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 10,
        "lakemq.query.id": "q1",
        "lakemq.batch.id": 7,
        "lakemq.batch.acknowledged": 7,
        "lakemq.batch.retried": 2,
        "lakemq.batch.given_up": 1,
    }


@pytest.mark.parametrize("topics", [(), ("orders", "refunds")])
def test_a_batch_of_several_topics_names_none(topics: tuple[str, ...]) -> None:
    with recorded_spans() as spans, batch_span("billing", topics, "q1", 7):
        pass
    assert "messaging.destination.name" not in attributes(spans.get_finished_spans()[0])


def test_a_batch_that_fails_is_an_error_and_fails() -> None:
    with recorded_spans() as spans:
        with pytest.raises(ValueError, match="no ledger"), batch_span("billing", ["orders"], "q1", 7):
            raise ValueError("no ledger")
        (ended,) = spans.get_finished_spans()
    assert ended.status.status_code is StatusCode.ERROR
    assert ended.status.description == "ValueError: no ledger"
    assert [event.name for event in ended.events] == ["exception"]
