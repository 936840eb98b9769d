"""Builds the FastAPI application of a name server process.

Owns what a name server answers: registrations, routes, the cluster, health.

Invariants: it keeps nothing but its tables, in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ha_replicator.nameserver import NameServer
from ingest_api.broker.admission import Admission
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.settings import LimitSettings
from ingest_api.http.connection.watch import ConnectionWatch
from ingest_api.http.guarded_app import GuardedApp
from ingest_api.http.messages.targets import API
from ingest_api.http.request.body import BodyReader, Deadlines
from ingest_api.http.responses.error_responses import ErrorResponses
from ingest_api.http.routes import brokers, name_server, topic_routes
from ingest_api.process_settings import HttpSettings

REGISTRATION_BYTES = 64 << 20
"""Of a registration; 100,000 topics take about 12 MB."""
BODY_TIMEOUT_S = 30.0


class NameServerDoor:
    """HTTP in front of a name server; built on the running loop.

    Args:
        names: What answers.
        http: Where it listens, and the bounds.
        scheme: ``https`` where it speaks TLS, else ``http``.
        slow_request_ms: A request slower than it gets a line.
        stop: Run once, after the last request.
    """

    def __init__(
        self,
        names: NameServer,
        http: HttpSettings,
        scheme: str,
        slow_request_ms: int,
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        loop = asyncio.get_running_loop()
        metrics = BrokerMetrics(group_exists=lambda group: False)
        self._stop_within_s = http.stop_timeout_s / 2
        self._watch = ConnectionWatch(http)
        self._deadlines = Deadlines(BODY_TIMEOUT_S, loop.time, loop.call_at, loop)
        bodies = BodyReader(self._deadlines, Admission(LimitSettings(), metrics), REGISTRATION_BYTES)
        self.app = app = GuardedApp(
            "LakeMQ name server",
            watch=self._watch,
            scheme=scheme,
            errors=ErrorResponses(metrics, slow_request_ms),
            control_bodies=bodies,
            metrics=metrics,
            stop=stop,
        )
        tables = names.tables
        for router in (
            brokers.router(names),
            topic_routes.router(tables),
            name_server.cluster_router(tables),
        ):
            app.include_router(router, prefix=API)
        app.include_router(name_server.health_router())

    def begin_stop(self) -> None:
        """Gives what is being received or read half of a stop's time."""
        self._deadlines.stop(self._stop_within_s)
        self._watch.stop(self._stop_within_s)
