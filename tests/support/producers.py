"""Producers of tests: over a scripted network, with time and threads that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from lakemq import Producer
from lakemq.client import Client
from lakemq.client.broker_transport import BrokerTransport
from lakemq.client.cluster import Cluster
from tests.support.scripted_endpoints import A, B, Endpoints
from tests.support.scripted_network import Fate, ScriptedNetwork
from tests.support.turns import Turns

FOR_EVER_MS = 3_600_000
REPEATED: list[Fate] = ["busy", "busy", "answered"]


def bodies(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["body"] for line in lines]


def producer_of(turns: Turns, client: Client, **options: Any) -> Producer:
    return Producer(client, "t", clock=turns.clock, threads=turns, **options)


def in_callback(future: Future[Any], function: Callable[[], Any]) -> list[Any]:
    """What a function that the future's callback calls returns or raises, when it has."""
    came: list[Any] = []

    def call(_: object) -> None:
        try:
            came.append(function())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            came.append(error)

    future.add_done_callback(call)
    return came


def client_of_two(
    network: ScriptedNetwork | Mapping[str, ScriptedNetwork],
    monkeypatch: pytest.MonkeyPatch,
    endpoints: Endpoints | None = None,
) -> Client:
    """The client of brokers a and b; the requests of both come to one network, or to one of each name."""
    endpoints = endpoints or Endpoints()
    client = Client([A, B], retries=0)
    settings = {"timeout_s": 30.0, "retries": 0, "pool_size": 1, "retry_until": None}

    def client_over(transport: BrokerTransport) -> Client:
        to = network if isinstance(network, ScriptedNetwork) else network[transport.name]
        return to.client(retries=0)

    cluster = Cluster((A, B), settings, client_over)
    cluster.routes = endpoints.routes(A, B)
    monkeypatch.setattr(client, "_cluster", cluster)
    return client
