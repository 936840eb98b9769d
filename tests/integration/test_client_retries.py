"""When the client repeats a request: never a send that may have been stored, unless it has a key."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from lakemq import Client
from lakemq.client import OutcomeUnknown, Unavailable
from lakemq.client.transport import Transport
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch

RETRIES = 2


class HangingUp:
    """A peer that reads the start of each request and hangs up; counts how often it was tried."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                if connection.recv(1):
                    self.requests += 1


@pytest.fixture
def peer() -> Iterator[HangingUp]:
    hanging_up = HangingUp()
    yield hanging_up
    hanging_up.close()


@pytest.fixture
def nobody() -> str:
    """An endpoint nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


class Pausing(Client):
    """A client whose pauses between two attempts are the test's."""

    def __init__(self, endpoint: str, pause: Callable[[float], None]) -> None:
        super().__init__(endpoint)
        self._transport = Transport(endpoint, timeout_s=5.0, retries=RETRIES, pool_size=1, pause=pause)


def client_of(endpoint: str, pause: Callable[[float], None] = lambda seconds: None) -> Client:
    return Pausing(endpoint, pause)


def test_send_that_got_no_answer_is_not_repeated(peer: HangingUp) -> None:
    with pytest.raises(OutcomeUnknown):
        client_of(peer.endpoint).send("t", "x")
    assert peer.requests == 1


def test_send_with_a_key_is_repeated(peer: HangingUp) -> None:
    with pytest.raises(OutcomeUnknown):
        client_of(peer.endpoint).send("t", "x", idempotency_key="k")
    assert peer.requests == 1 + RETRIES


def test_read_is_repeated(peer: HangingUp) -> None:
    with pytest.raises(Unavailable):
        client_of(peer.endpoint).queues("t")
    assert peer.requests == 1 + RETRIES


def test_send_nobody_received_is_repeated_with_growing_pauses(nobody: str) -> None:
    pauses: list[float] = []
    with pytest.raises(Unavailable) as refused:
        client_of(nobody, pauses.append).send("t", "x")
    assert refused.value.context["sent"] is False
    assert len(pauses) == RETRIES
    assert 0.05 <= pauses[0] <= 0.1 <= pauses[1] <= 0.2


def test_nobody_there_is_not_ready(nobody: str) -> None:
    pauses: list[float] = []
    assert not client_of(nobody, pauses.append).ready()
    assert pauses == []


def test_client_outlives_a_restart_of_the_broker(broker: BrokerProcess) -> None:
    client = broker.client()
    first = client.send("t", "before", idempotency_key="a")
    broker.kill()
    broker.start()
    await_dispatch(client)
    assert client.message(first.message_id).text == "before"
    assert client.send("t", "before", idempotency_key="a").duplicate
