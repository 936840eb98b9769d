"""Whether a process makes spans, and where they go.

Contract: OpenTelemetry's own variables decide, or a provider that the program has set; what they ask for and
is not there is said once and costs nothing else; nobody waits for a collector longer than was said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.tracing.provider import exporter_names, is_asked_for

ROOT = Path(__file__).resolve().parents[4]
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "billing"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
        ({"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}, True),
    ],
)
def test_the_environment_says_whether_there_are_traces(environment: dict[str, str], asked: bool) -> None:
    assert is_asked_for(environment) == asked


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        (ENDPOINT, ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            ["otlp_proto_http"],
        ),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp_proto_http"]),
    ],
)
def test_the_environment_names_the_exporters(environment: dict[str, str], names: list[str]) -> None:
    assert list(exporter_names(environment)) == names


def said_by(code: str, **environment: str) -> tuple[str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stdout, ended.stderr


TWICE = "from jobs.tracing.provider import tracer; print(tracer(), tracer())"


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.sdk.trace"])
def test_without_the_extra_it_is_said_once_what_it_takes(missing: str) -> None:
    out, err = said_by(f"import sys; sys.modules[{missing!r}] = None; {TWICE}", **ENDPOINT)
    assert out == "None None\n"
    assert err == (
        "the environment asks for traces, and there are none: it needs: pip install 'lakemq[otel]'\n"
    )


def test_an_exporter_that_is_not_installed_is_said_once() -> None:
    out, err = said_by(TWICE, OTEL_TRACES_EXPORTER="zipkin")
    assert out == "None None\n"
    assert err == (
        "the environment asks for traces, and there are none: ValueError: no exporter of traces named "
        "'zipkin' is installed\n"
    )


def test_the_last_spans_of_a_process_are_sent_when_it_ends() -> None:
    out, _ = said_by(
        "from jobs.tracing.batch_span import batch_span\nwith batch_span('billing', [], 'q', 1): pass",
        OTEL_TRACES_EXPORTER="console",
        OTEL_SERVICE_NAME="shop",
        OTEL_BSP_SCHEDULE_DELAY="3600000",
    )
    assert '"name": "batch billing"' in out
    assert '"service.name": "shop"' in out


OWN = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
own = TracerProvider()
trace.set_tracer_provider(own)
from jobs.tracing.provider import tracer
print(tracer() is not None, trace.get_tracer_provider() is own)
"""


@pytest.mark.parametrize("environment", [{}, ENDPOINT])
def test_a_provider_that_the_program_has_set_is_used(environment: dict[str, str]) -> None:
    assert said_by(OWN, **environment) == ("True True\n", "")


HANGS = """
import threading
from jobs.tracing.provider import Sender

class Provider:
    def force_flush(self):
        threading.Event().wait()

sender = Sender(Provider())
sender.flush(0.05)
sender.flush(0.05)
print("came back")
"""


def test_a_flush_that_hangs_is_waited_for_so_long_only() -> None:
    assert said_by(HANGS) == ("came back\n", "")
