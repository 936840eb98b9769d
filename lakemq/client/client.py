"""The client itself: one endpoint, its pool, and the calls of the three modules beside it.

Owns the transport's life.

Invariants: safe to share between threads; pickled it is its settings, so that a Spark task opens its own
connections.
"""

from __future__ import annotations

from typing import Any, Self

from lakemq.client.admin_api import AdminApi
from lakemq.client.endpoint import chosen_endpoint
from lakemq.client.produce_api import ProduceApi
from lakemq.client.pull_api import PullApi
from lakemq.client.transport import Transport


class Client(ProduceApi, PullApi, AdminApi):
    """Speaks to one LakeMQ broker.

    >>> client = Client("http://127.0.0.1:8090")
    >>> client.send("orders", {"id": 17}, tags="created", keys=["17"]).queue_offset
    0

    Args:
        endpoint: The broker's address; None is the environment's LAKEMQ_ENDPOINT, else
            http://127.0.0.1:8090.
        timeout_s: How long a call may take in all, its repeats included; a long poll adds its own
            waiting time.
        retries: How often a call that may be repeated is repeated within that time.
        pool_size: Connections, hence threads that can be served at the same time.
        retry_until: A call that may be repeated is repeated until so many seconds after its begin,
            whatever ``retries`` says; one attempt then takes at most ``timeout_s``.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 2,
        pool_size: int = 16,
        retry_until: float | None = None,
    ) -> None:
        chosen = chosen_endpoint(endpoint)
        self._settings: dict[str, Any] = {
            "timeout_s": timeout_s,
            "retries": retries,
            "pool_size": pool_size,
            "retry_until": retry_until,
        }
        self._transport = Transport(chosen, **self._settings)

    @property
    def endpoint(self) -> str:
        """The broker's address."""
        return self._transport.endpoint

    @property
    def call_timeout_s(self) -> float:
        """How long a call may take that does not say so itself."""
        until = self._transport.retry_until
        return self._transport.timeout_s if until is None else until

    def close(self) -> None:
        """Closes the connections; what is under way ends, further calls raise Closed."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.endpoint!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.endpoint, self._settings)


def _rebuild(cls: type[Client], endpoint: str, settings: dict[str, Any]) -> Client:
    return cls(endpoint, **settings)
