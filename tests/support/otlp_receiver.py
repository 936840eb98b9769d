"""A receiver of OpenTelemetry's spans: OTLP over HTTP, on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.post_receiver import post_receiver


@dataclass
class OtlpReceiver:
    """What came.

    Attributes:
        endpoint: For OTEL_EXPORTER_OTLP_ENDPOINT.
        answers: While it is not set, requests are taken and not answered.
        asked: Set when the first request has come.
        spans: In the order they came in.
        services: The names of the services that sent them.
    """

    endpoint: str = ""
    answers: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def named(self, name: str) -> list[Span]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def take(self, body: bytes) -> None:
        """Takes a request's spans."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for pair in resource.resource.attributes:
                if pair.key == "service.name":
                    self.services.add(pair.value.string_value)
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)


def attributes_of(span: Span) -> dict[str, str | int]:
    """A span's attributes."""
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in span.attributes}


@contextmanager
def otlp_receiver(*, answers: bool = True) -> Iterator[OtlpReceiver]:
    """Runs a receiver; without `answers` it leaves requests unanswered until the block ends."""
    receiver = OtlpReceiver()
    if answers:
        receiver.answers.set()

    with post_receiver(receiver.take, receiver.asked, receiver.answers) as receiver.endpoint:
        yield receiver
