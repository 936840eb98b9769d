"""Spans of a group, sent over OTLP to a real receiver.

Contract: with OpenTelemetry's variables set, a group reports one span for each batch and one for each call of
its handler, whose parent is the producer's; what a verdict sends carries the call on; a collector that does
not answer holds up neither a batch nor the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from delta_tables.ledger_reader import LedgerReader
from jobs.handler.isolated_handler import IsolatedHandler
from jobs.handler.loader import HandlerTarget
from jobs.redelivery.retry_policy import RetryPolicy
from jobs.tracing.call_spans import TracedBatch
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.otlp_receiver import OtlpReceiver, attributes_of, otlp_receiver
from tests.support.waiting import wait_until

HANDLER = """
from opentelemetry import trace
from lakemq.handler import Outgoing, Verdict

def handle(message):
    with trace.get_tracer("shop").start_as_current_span("charge"):
        pass
    if message.text == "bad":
        raise ValueError("bank away")
    return Verdict.ack(send=Outgoing("invoices", message.text))

def count(message):
    pass
"""
MESSAGES = 20


def trace_of(number: int) -> str:
    return f"{number + 1:032x}"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
        yield receiver


@pytest.mark.parametrize("vectorised", ["no", "yes"])
def test_calls_in_a_process_of_their_own_are_reported_when_a_batch_is_over(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectorised: str
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    (tmp_path / "traced_shop.py").write_text(HANDLER)
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["orders"],
            "broker_name": ["broker-a"],
            "queue_id": [0],
            "queue_offset": [0],
            "message_id": ["M0"],
            "attempt": [1],
            "properties": pa.array(
                [[("traceparent", f"00-{trace_of(0)}-{1:016x}-01")]], pa.map_("string", "string")
            ),
        }
    )
    target = HandlerTarget("traced_shop:count", "yes" if vectorised == "yes" else "no", (str(tmp_path),))
    handler = IsolatedHandler(target, RetryPolicy.of("1s", [1_000], 16), 2, 60.0)
    traced = TracedBatch("billing", {"traceparent": f"00-{trace_of(6)}-{7:016x}-01"})
    try:
        if vectorised == "yes":
            handler.call_batch(batch, traced)
        else:
            handler.call_rows(batch, traced=traced)
        wait_until(lambda: bool(receiver.spans))
    finally:
        handler.close()
    (span,) = receiver.named("process orders")
    (link,) = span.links
    of_the_message, of_the_batch = trace_of(0), trace_of(6)
    wanted = [of_the_batch, of_the_message] if vectorised == "yes" else [of_the_message, of_the_batch]
    assert [span.trace_id.hex(), link.trace_id.hex()] == wanted
    assert attributes_of(span)["messaging.consumer.group.name"] == "billing"
    assert receiver.services == {"shop"}


def send(broker: BrokerProcess) -> None:
    client = broker.client()
    for topic in ("orders", "invoices"):
        client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    for number in range(MESSAGES):
        parent = {"traceparent": f"00-{trace_of(number)}-{number + 1:016x}-01"}
        client.send_message("orders", Message("bad" if number == 7 else str(number), properties=parent))


def arguments(broker: BrokerProcess) -> tuple[str, ...]:
    where = ("--topic", "orders", "--from", "earliest", "--endpoint", broker.endpoint)
    return ("--group", "billing", *where, "--until-idle", "0.5s", "--max-reconsume-times", "0")


@pytest.mark.nightly
@pytest.mark.long
def test_a_group_reports_its_batches_and_calls(
    receiver: OtlpReceiver, broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "traced_shop.py").write_text(HANDLER)
    send(broker)
    options = (*arguments(broker), "--handler", "traced_shop:handle", "--send-to", "invoices")
    with ConsumerProcess(tmp_path, *options) as consumer:
        assert consumer.wait() == 0, consumer.log()
        wait_until(lambda: len(receiver.named("process orders")) == MESSAGES, otherwise=consumer.log)
        wait_until(lambda: len(receiver.named("charge")) == MESSAGES, otherwise=consumer.log)
    batches = receiver.named("batch billing")
    assert (
        sum(int(attributes_of(span).get("messaging.batch.message_count", 0)) for span in batches) == MESSAGES
    )
    assert sum(int(attributes_of(span).get("lakemq.batch.given_up", 0)) for span in batches) == 1
    calls = receiver.named("process orders")
    parents = {(span.trace_id.hex(), span.parent_span_id.hex()) for span in calls}
    assert parents == {(trace_of(number), f"{number + 1:016x}") for number in range(MESSAGES)}
    assert {link.span_id for span in calls for link in span.links} <= {span.span_id for span in batches}
    assert all(len(span.links) == 1 for span in calls)
    failed = [span for span in calls if span.status.message]
    assert [(span.trace_id.hex(), span.status.message) for span in failed] == [
        (trace_of(7), "ValueError: bank away")
    ]
    own = {(span.trace_id, span.parent_span_id) for span in receiver.named("charge")}
    assert own == {(span.trace_id, span.span_id) for span in calls}
    sent = broker.client().pull("invoices", 0, 0).messages + broker.client().pull("invoices", 1, 0).messages
    carried = {message.properties["traceparent"].split("-")[1] for message in sent}
    assert carried == {trace_of(number) for number in range(MESSAGES) if number != 7}
    assert receiver.services == {"shop"}


@pytest.mark.nightly
@pytest.mark.long
def test_a_collector_that_does_not_answer_holds_up_no_batch_and_no_end(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traced_shop.py").write_text(HANDLER)
    send(broker)
    with otlp_receiver(answers=False) as held:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", held.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")  # whoever waited would wait for an hour
        with ConsumerProcess(tmp_path, *arguments(broker), "--handler", "traced_shop:count") as consumer:
            assert consumer.wait() == 0, consumer.log()
        assert held.asked.is_set()
        assert held.spans == []
    rows = LedgerReader(tmp_path / "ledger").sql(
        "SELECT verdict, count(*) AS n FROM deliveries GROUP BY verdict"
    )
    assert rows.to_pylist() == [{"verdict": "ACK", "n": MESSAGES}]
