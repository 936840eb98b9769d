"""Spans of a handler's calls.

Contract: each call has one span, whose parent is what the message's properties say, or the batch's span; it
is the current one while the handler runs, says what the call came to, and what a verdict sends carries it on.
Unless somebody asks for traces nothing of OpenTelemetry is imported; a span that goes wrong costs no call.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from jobs.handler.invocation import HandlerHost, invoke_here
from jobs.handler.loader import LoadedHandler
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.results import HandlerResults
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.call_spans import MOST_LINKS, NOT_TRACED, TracedBatch
from lakemq.handler import Outgoing, Verdict
from tests.support.recorded_spans import recorded_spans

POLICY = RetryPolicy.of("10s", [1_000, 10_000], 16)
ROOT = Path(__file__).resolve().parents[4]
BATCH = "00-" + "b" * 32 + "-" + "b" * 16 + "-01"
TRACED = TracedBatch("billing", {"traceparent": BATCH})


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def messages(properties: Sequence[dict[str, str]], topics: Sequence[str] = ()) -> pa.RecordBatch:
    rows = range(len(properties))
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(topics or ["orders"] * len(rows)),
            "broker_name": pa.array(["broker-a"] * len(rows)),
            "queue_id": pa.array([3] * len(rows), pa.int32()),
            "queue_offset": pa.array([100 + row for row in rows], pa.int64()),
            "message_id": pa.array([f"M{row}" for row in rows]),
            "attempt": pa.array([2] * len(rows), pa.int32()),
            "properties": pa.array([list(each.items()) for each in properties], pa.map_("string", "string")),
        }
    )


def handled(
    handle: Callable[..., Any],
    batch: pa.RecordBatch,
    traced: TracedBatch = TRACED,
    *,
    vectorised: bool = False,
    is_async: bool = False,
    concurrency: int = 4,
) -> HandlerResults:
    loaded = LoadedHandler(handle, vectorised, is_async=is_async)
    with closing(OpenedHandler(loaded)) as handler:
        return invoke_here(handler, batch, POLICY, None, HandlerHost(concurrency), None, traced)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded_spans() as spans:
        yield spans


def one(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def works(message: Any) -> None:
    with trace.get_tracer("handler").start_as_current_span(f"work {message.message_id}"):
        pass


async def works_on_a_loop(message: Any) -> None:
    await asyncio.sleep(0)
    works(message)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize(("handle", "is_async"), [(works, False), (works_on_a_loop, True)])
def test_a_calls_parent_is_the_producer_and_the_handlers_spans_are_its_children(
    spans: InMemorySpanExporter, handle: Callable[..., Any], is_async: bool, concurrency: int
) -> None:
    sent = [{"traceparent": traceparent(n + 1), "tracestate": "vendor=7"} for n in range(20)]
    handled(handle, messages(sent), is_async=is_async, concurrency=concurrency)
    calls = {
        span.attributes["messaging.message.id"]: span
        for span in spans.get_finished_spans()
        if span.name == "process orders" and span.attributes is not None
    }
    assert len(calls) == 20
    for n in range(20):
        call = calls[f"M{n}"]
        assert parent_of(call) == (n + 1, n + 1)
        assert call.context is not None
        assert call.context.trace_state.get("vendor") == "7"
        assert [link.context.span_id for link in call.links] == [int("b" * 16, 16)], "the batch's span"
        work = one(spans, f"work M{n}")
        assert parent_of(work) == (n + 1, call.context.span_id)


def test_a_calls_span_says_what_the_conventions_ask_for(spans: InMemorySpanExporter) -> None:
    handled(lambda message: None, messages([{}]))
    call = one(spans, "process orders")
    assert call.kind is SpanKind.CONSUMER
    assert call.status.status_code is StatusCode.UNSET
    assert dict(call.attributes or {}) == {
        "messaging.system": "lakemq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.message.id": "M0",
        "lakemq.broker.name": "broker-a",
        "lakemq.queue.offset": 100,
        "lakemq.attempt": 2,
        "lakemq.verdict": "ACK",
    }


@pytest.mark.parametrize("properties", [{}, {"traceparent": "rubbish"}])
def test_a_message_that_says_no_parent_is_the_batchs_child(
    spans: InMemorySpanExporter, properties: dict[str, str]
) -> None:
    handled(lambda message: None, messages([properties]))
    call = one(spans, "process orders")
    assert parent_of(call) == (int("b" * 32, 16), int("b" * 16, 16))
    assert call.links == ()


def test_a_call_without_any_parent_begins_a_trace(spans: InMemorySpanExporter) -> None:
    handled(lambda message: None, messages([{}]), TracedBatch("billing"))
    assert one(spans, "process orders").parent is None


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_is_the_spans_error_and_a_verdict_is_none(
    spans: InMemorySpanExporter, is_async: bool
) -> None:
    def handle(message: Any) -> Verdict:
        if message.message_id == "M0":
            raise ValueError("bank away")
        return Verdict.dead("negative amount")

    async def handle_on_a_loop(message: Any) -> Verdict:
        return handle(message)

    handled(handle_on_a_loop if is_async else handle, messages([{}, {}]), is_async=is_async, concurrency=1)
    raised, dead = spans.get_finished_spans()
    assert raised.attributes is not None
    assert raised.attributes["lakemq.verdict"] == "RETRY"
    assert raised.attributes["error.type"] == "ValueError"
    assert (raised.status.status_code, raised.status.description) == (
        StatusCode.ERROR,
        "ValueError: bank away",
    )
    (event,) = raised.events
    assert event.name == "exception"
    assert event.attributes is not None
    assert "in handle" in str(event.attributes["exception.stacktrace"])
    assert dead.attributes is not None
    assert dead.attributes["lakemq.verdict"] == "DEAD"
    assert dead.attributes["lakemq.reason"] == "negative amount"
    assert dead.status.status_code is StatusCode.UNSET


def test_what_is_no_verdict_is_an_error_too(spans: InMemorySpanExporter) -> None:
    handled(lambda message: "fine", messages([{}]))
    assert one(spans, "process orders").status.status_code is StatusCode.ERROR


def test_a_batchs_call_is_the_batchs_child_with_links_to_so_many_messages_once_each(
    spans: InMemorySpanExporter,
) -> None:
    def handle(batch: pa.RecordBatch) -> None:
        works(type("Message", (), {"message_id": "all"}))

    sent = [{"traceparent": traceparent(1 + n // 2)} for n in range(2 * MOST_LINKS)]
    handled(handle, messages([{}, *sent]), vectorised=True)
    call = one(spans, "process orders")
    assert parent_of(call) == (int("b" * 32, 16), int("b" * 16, 16))
    assert call.attributes is not None
    assert call.attributes["messaging.batch.message_count"] == 1 + 2 * MOST_LINKS
    linked = [link.context.trace_id for link in call.links]
    assert linked == list(range(1, 1 + MOST_LINKS // 2)), "of the first 128 messages, the first has none"
    assert call.context is not None
    assert parent_of(one(spans, "work all")) == (call.context.trace_id, call.context.span_id)


def test_each_call_of_the_search_for_a_bad_message_has_its_span(spans: InMemorySpanExporter) -> None:
    def handle(batch: pa.RecordBatch) -> None:
        if "audit" in batch.column("topic").to_pylist():
            raise ValueError("not for us")

    handled(handle, messages([{}] * 2, ["orders", "audit"]), vectorised=True)
    found = [(span.name, span.status.status_code) for span in spans.get_finished_spans()]
    assert found[0] == ("process", StatusCode.ERROR), "of two topics"
    assert ("process orders", StatusCode.UNSET) in found
    assert ("process audit", StatusCode.ERROR) in found


@pytest.mark.parametrize("vectorised", [False, True])
def test_what_a_verdict_sends_carries_the_call_on_unless_it_says_otherwise(
    spans: InMemorySpanExporter, vectorised: bool
) -> None:
    own = {"traceparent": traceparent(9)}
    verdict = Verdict.ack(send=[Outgoing("invoices", "a"), Outgoing("invoices", "b", properties=own)])

    def handle(given: Any) -> Any:
        return [verdict] if vectorised else verdict

    results = handled(handle, messages([{"traceparent": traceparent(1)}]), vectorised=vectorised)
    call = one(spans, "process orders")
    assert call.context is not None
    assert results.outbox is not None
    carried, kept = (dict(message["properties"]) for message in results.outbox[0].as_py())
    assert carried.keys() == {"traceparent"}
    assert carried["traceparent"].startswith(f"00-{call.context.trace_id:032x}-{call.context.span_id:016x}-")
    assert kept == own


def test_what_is_sent_without_traces_carries_nothing() -> None:
    results = handled(lambda message: Verdict.ack(send=Outgoing("invoices", "a")), messages([{}]))
    assert results.outbox is not None
    assert results.outbox[0].as_py()[0]["properties"] == []


class Raises(SpanProcessor):
    def __init__(self, at: str) -> None:
        self._at = at

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self._at == "start":
            raise RuntimeError("a processor's own fault")

    def on_end(self, span: ReadableSpan) -> None:
        if self._at == "end":
            raise RuntimeError("a processor's own fault")


@pytest.mark.parametrize("at", ["start", "end"])
@pytest.mark.parametrize("vectorised", [False, True])
def test_a_span_that_goes_wrong_costs_no_call(at: str, vectorised: bool) -> None:
    called: list[Any] = []
    with recorded_spans(Raises(at)):
        results = handled(called.append, messages([{}] * 3), vectorised=vectorised, concurrency=1)
    assert results.verdict is None
    assert len(called) == (1 if vectorised else 3)
    assert not trace.get_current_span().get_span_context().is_valid


WITHOUT_TRACES = """
import sys
import pyarrow as pa
from jobs.handler.invocation import invoke_here
from jobs.handler.loader import LoadedHandler
from jobs.handler.opened_handler import OpenedHandler
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.batch_span import batch_span
from jobs.tracing.call_spans import TracedBatch

with batch_span("g", ["t"], "q", 1) as span:
    span.came_to(1, 0, 0)
    handler = OpenedHandler(LoadedHandler(lambda message: None, False))
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"a"])})
    results = invoke_here(handler, batch, RetryPolicy.of("1s", [1_000], 16), traced=TracedBatch.here("g"))
print(results.verdict, [name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nothing_of_opentelemetry_is_imported_where_nobody_asks_for_traces() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRACES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("None []\n", "")


def test_calls_that_nobody_traces_make_no_spans_of_a_batch() -> None:
    with NOT_TRACED.calls() as calls:
        assert calls.of_batch(messages([{}])) is calls.of_batch(messages([{}])), "the same, which is none"
