"""What the HTTP front door is made of, beside the broker core.

Owns the parts that know HTTP: connections, bodies and their deadlines, error responses, the raw paths of
sends and pulls.

Invariants: half of the time of a stop is for what is still being received or read, the rest for answering it.
"""

from __future__ import annotations

import asyncio

from ingest_api.broker.broker import Broker
from ingest_api.http.connection.watch import ConnectionWatch
from ingest_api.http.messages.pull import PullPath
from ingest_api.http.messages.send import SendPath
from ingest_api.http.request.body import BodyReader, Deadlines
from ingest_api.http.responses.error_responses import ErrorResponses
from ingest_api.settings import Settings

CONTROL_BODY_BYTES = 8 << 20
"""Bodies of administrative requests; a group with 100,000 queues commits in less."""


class FrontDoor:
    """HTTP in front of a broker.

    Args:
        broker: What answers.
        settings: The process's, of which the broker has its own part.
        scheme: ``https`` where its port speaks TLS, else ``http``.
    """

    def __init__(self, broker: Broker, settings: Settings, scheme: str) -> None:
        loop = asyncio.get_running_loop()
        limits = settings.limits
        self.broker = broker
        self.settings = settings
        self.scheme = scheme
        self.connections = ConnectionWatch(settings.http)
        self.errors = ErrorResponses(broker.metrics, settings.log.slow_request_ms)
        self._deadlines = deadlines = Deadlines(limits.body_timeout_s, loop.time, loop.call_at, loop)
        self.control_bodies = BodyReader(deadlines, broker.admission, CONTROL_BODY_BYTES)
        bodies = BodyReader(deadlines, broker.admission, limits.max_request_bytes)
        self.send = SendPath(broker.send, bodies, broker.metrics, self.errors, limits)
        self.pull = PullPath(
            broker.pull,
            broker.metrics,
            self.errors,
            limits.max_wait_ms,
            lambda: broker.replication.may_be_behind,
            lambda: broker.log_epoch,
            broker.slave_reads,
        )

    def begin_stop(self) -> None:
        """Ends what waits for clients and begins the broker's stop; called before requests are waited for."""
        within_s = self.settings.http.stop_timeout_s / 2
        self._deadlines.stop(within_s)
        self.connections.stop(within_s)
        self.broker.begin_stop()
