"""The client of one broker of several: what is said of it, and its pickle, ask nobody."""

from __future__ import annotations

import http.server
import json
import pickle
import threading
from collections.abc import Iterator

import pytest

from lakemq import Client
from lakemq.client import Closed, Unavailable

MASTER = "http://127.0.0.1:2"


class NameServer(http.server.ThreadingHTTPServer):
    """Knows one broker, and counts who asks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.asked = 0


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, NameServer)
        self.server.asked += 1
        broker = {"broker_name": "broker-a", "addresses": {"0": MASTER}, "epoch": 1}
        body = json.dumps({"brokers": [broker]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    with NameServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def endpoint(name_server: NameServer) -> str:
    return f"http://127.0.0.1:{name_server.server_port}"


def test_its_endpoint_is_its_masters_and_neither_that_nor_its_repr_asks(
    name_server: NameServer, endpoint: str
) -> None:
    with Client(endpoint) as client:
        broker = client.brokers()["broker-a"]
        name_server.asked = 0
        client.cluster_routes.routes.failed()
        assert broker.endpoint == MASTER
        assert repr(broker) == f"Client({MASTER!r})"
        unknown = client.broker("broker-b")
        assert unknown.endpoint == "broker-b", "nobody knows it"
        assert repr(unknown) == "Client('broker-b')"
        assert name_server.asked == 0


def test_it_is_unpickled_without_a_word_from_its_name_server(name_server: NameServer, endpoint: str) -> None:
    with Client(endpoint, retries=0) as client:
        pickled = pickle.dumps(client.brokers()["broker-a"])
    name_server.asked = 0
    again: Client = pickle.loads(pickled)
    assert again.endpoint == "broker-a"
    assert pickle.loads(pickle.dumps(again)).endpoint == "broker-a"
    assert name_server.asked == 0
    with pytest.raises(Unavailable, match="broker broker-a: no connection"):
        again.topics()
    assert again.endpoint == MASTER
    again.close()
    with pytest.raises(Closed):
        again.topics()
