"""Whether this process makes spans, and who takes them.

Owns the TracerProvider that the OTEL_* variables of the environment ask for. One that the program itself has
set, or a handler's module, is used in its place.

Invariants: tracing fails no batch; nobody waits for a collector but a process that ends, and that one for
FLUSH_S at most.

Threads: one daemon has the spans of our own provider sent when a batch or a task is over; the SDK's own sends
them in between.

Processes: the driver, Spark's Python workers, and the processes handlers are isolated in, each for itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

_log = logging.getLogger(__name__)

FLUSH_S = 2.0
"""What the end of a process waits for its last spans to be taken."""

_EXPORTER = "OTEL_TRACES_EXPORTER"
_ASK = (
    _EXPORTER,
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_PYTHON_TRACER_PROVIDER",
)
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def tracer() -> Tracer | None:
    """What makes the spans of this process; None when nobody wants any."""
    if "opentelemetry.trace" not in sys.modules and not is_asked_for(os.environ):
        return None
    try:
        return _tracer()
    except Exception as error:  # noqa: BLE001 - providers and exporters are foreign code
        _warn_once(f"{type(error).__name__}: {error}")
        return None


def flush() -> None:
    """Has what is left of this process's spans sent; returns when that is done, or after FLUSH_S."""
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import trace

        sender = _own[0] if _own else Sender(trace.get_tracer_provider())
        sender.flush(FLUSH_S)


def send() -> None:
    """Has the spans so far sent, and does not wait; a program's own provider sends when it likes."""
    for sender in _own:
        sender.ask()


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether an environment's variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return environment.get(_EXPORTER, "").strip() != "none" and any(map(environment.get, _ASK))


def exporter_names(environment: Mapping[str, str]) -> Iterator[str]:
    """The exporters an environment's variables name, as their packages register them."""
    for each in (environment.get(_EXPORTER) or "otlp").split(","):
        name = each.strip()
        if name == "otlp":
            protocol = next(filter(None, map(environment.get, _PROTOCOLS)), "")
            name = "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"
        if name != "none":
            yield name


class Sender:
    """The thread that has a provider's spans sent: when a process ends, no thread can be started any more.

    Args:
        provider: The provider.
    """

    def __init__(self, provider: Any) -> None:
        self._flush = getattr(provider, "force_flush", lambda: None)
        self._asked = threading.Event()
        self._idle = threading.Event()
        threading.Thread(target=self._run, name="span-sender", daemon=True).start()

    def ask(self) -> None:
        """Has them sent, and does not wait."""
        self._idle.clear()
        self._asked.set()

    def flush(self, timeout_s: float) -> None:
        """Has them sent, and waits so long at most."""
        self.ask()
        self._idle.wait(timeout_s)

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            try:
                self._flush()  # the SDK's takes as long as the exporter, whatever time it is given
            except Exception:  # noqa: BLE001 - foreign code
                _log.debug("spans could not be sent", exc_info=True)
            if not self._asked.is_set():
                self._idle.set()


_own: list[Sender] = []
"""Of the provider that the environment asked for."""


def _tracer() -> Tracer | None:
    try:
        from opentelemetry import trace
    except ImportError:
        _warn_once("it needs: pip install 'lakemq[otel]'")
        return None

    nobody_has_set_one = isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    if nobody_has_set_one and not (is_asked_for(os.environ) and _begin()):
        return None
    return trace.get_tracer("lakemq")


@cache
def _begin() -> bool:
    """Makes the provider that the environment asks for this process's."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _warn_once("it needs: pip install 'lakemq[otel]'")
        return False
    provider = TracerProvider(shutdown_on_exit=False)  # a shutdown waits for a dead collector, up to 30 s
    for name in exporter_names(os.environ):
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)
    _own.append(Sender(provider))
    atexit.register(flush)
    return True


def _exporter(name: str) -> SpanExporter:
    for found in entry_points(group="opentelemetry_traces_exporter", name=name):
        made: SpanExporter = found.load()()
        return made
    raise ValueError(f"no exporter of traces named {name!r} is installed")


@cache
def _warn_once(why: str) -> None:
    _log.warning("the environment asks for traces, and there are none: %s", why)
