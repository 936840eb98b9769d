"""HEAD, OPTIONS, Allow: every path says what it takes, and HEAD is GET without the body."""

from __future__ import annotations

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.wire import RawConnection, message, post, request

PATHS = {
    "/healthz": "GET, HEAD, OPTIONS",
    "/metrics": "GET, HEAD, OPTIONS",
    "/api/v1/topics": "GET, HEAD, OPTIONS",
    "/api/v1/topics/t": "GET, HEAD, PUT, DELETE, OPTIONS",
    "/api/v1/topics/t/messages": "GET, HEAD, POST, OPTIONS",
    "/api/v1/topics/t/queues/0/messages": "GET, HEAD, OPTIONS",
    "/api/v1/groups/g/offsets": "GET, HEAD, PUT, OPTIONS",
    "/api/v1/groups/g/lease": "POST, DELETE, OPTIONS",
    "*": "GET, HEAD, POST, PUT, DELETE, OPTIONS",
}


@pytest.mark.parametrize("path", PATHS)
def test_options_and_allow_name_all_methods(shared_broker: BrokerProcess, path: str) -> None:
    with RawConnection(shared_broker.port) as wire:
        answer = wire.send(request(b"OPTIONS " + path.encode())).answer()
        assert (answer.status, answer.headers["allow"]) == (204, PATHS[path])
        if path != "*":
            refused = wire.send(request(b"PATCH " + path.encode())).answer()
            refused.problem(405, "REQUEST_CODE_NOT_SUPPORTED")
            assert refused.headers["allow"] == PATHS[path]


def test_an_unknown_path_has_no_methods(shared_broker: BrokerProcess) -> None:
    with RawConnection(shared_broker.port) as wire:
        for method in (b"OPTIONS", b"PATCH", b"GET"):
            wire.send(request(method + b" /nothing/here")).answer().problem(404, "REQUEST_CODE_NOT_SUPPORTED")


def test_head_is_get_without_the_body(shared_broker: BrokerProcess) -> None:
    http = Http(shared_broker.endpoint)
    with RawConnection(shared_broker.port) as wire:
        assert wire.send(post("headed", message("x"))).answer().status == 200
        http.settle()
        for path in (
            b"/healthz",
            b"/readyz",
            b"/metrics",
            b"/api/v1/topics/headed",
            b"/api/v1/topics/headed/queues/0/messages?offset=0",
            b"/api/v1/topics/none",
        ):
            whole = wire.send(request(b"GET " + path)).answer()
            headed = wire.send(request(b"HEAD " + path)).answer(head=True)
            assert headed.status == whole.status
            if path != b"/metrics":
                assert headed.headers["content-length"] == whole.headers["content-length"]
        assert wire.send(request(b"GET /healthz")).answer().json == {"status": "alive"}, (
            "nothing was left over"
        )
