"""File descriptors: queues need none of their own, and a broker without any left says so and heals."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import time
from collections.abc import Callable

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http
from tests.support.waiting import wait_until
from tests.support.wire import RawConnection, message, post, request

SOON_S = 30.0


def metric(http: Http, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", http.get("//metrics").body.decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def send_to_each_queue(http: Http, topic: str, body: str) -> None:
    for first in range(0, 1000, 500):
        messages = [{"body": body, "queue_id": queue} for queue in range(first, first + 500)]
        assert http.post(f"/topics/{topic}/messages", {"messages": messages}).status == 200


def test_two_thousand_queues_work_with_256_descriptors_and_after_a_restart(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(descriptors=256)
    http = Http(broker.endpoint)
    for topic in ("a", "b"):
        assert http.put(f"/topics/{topic}", {"read_queue_nums": 1000, "write_queue_nums": 1000}).status < 300
        send_to_each_queue(http, topic, "first")
    assert metric(http, "process_open_fds") < 256
    assert metric(http, "process_max_fds") == 256
    broker.restart()
    http = Http(broker.endpoint)
    for topic in ("a", "b"):
        send_to_each_queue(http, topic, "second")
        for queue in (0, 999):
            answer = http.get(f"/topics/{topic}/queues/{queue}/messages", offset=0, max=10)
            assert [m["body"] for m in answer.json["messages"]] == ["first", "second"]
    broker.kill()
    broker.start()
    assert Http(broker.endpoint).get("//readyz").status == 200


def test_the_soft_limit_is_raised_to_the_hard_one(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    soft, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    assert "limit of open files" in broker.log()


def test_without_descriptors_no_send_is_ok_readyz_says_why_and_all_heals(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(config="[limits]\nsync_flush_timeout_s = 1.0\n")
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "before", "queue_id": 0}).status == 200
    assert http.get("//readyz").status == 200
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (8, hard))
    # Another queue: its file cannot be made.
    late = http.post("/topics/t/messages", {"body": "meanwhile", "queue_id": 1})
    assert (late.status, late.json["status"]) == (202, "FLUSH_DISK_TIMEOUT")
    unready = http.get("//readyz").problem(503, "SERVICE_NOT_AVAILABLE")
    assert "cannot be read" in unready["detail"]
    assert "open files" in unready["detail"]
    wait_until(lambda: http.post("/topics/t/messages", {"body": "no", "queue_id": 2}).status == 503)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (hard, hard))
    wait_until(lambda: http.get("//readyz").status == 200)
    wait_until(lambda: http.post("/topics/t/messages", {"body": "after", "queue_id": 1}).status == 200)
    answer = http.get("/topics/t/queues/1/messages", offset=0, max=10)
    assert [m["body"] for m in answer.json["messages"]] == ["meanwhile", "after"]
    # Those of queue 2 that were answered 202 while it was noticed are stored and readable.
    assert http.get("/topics/t/queues/0/messages", offset=0, max=10).json["messages"]


def test_a_flood_of_connections_leaves_the_store_its_files(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    limit, connections = 400, 184  # half of the limit, less those that receive the reason
    broker = start_broker(descriptors=limit)
    with RawConnection(broker.port) as wire, contextlib.ExitStack() as flood:
        assert wire.send(post("flooded", message("before"))).answer().status == 200
        for _ in range(500):
            one = flood.enter_context(socket.socket())
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(("127.0.0.1", broker.port))
        most, at_least, deadline = 0, 50, time.monotonic() + SOON_S
        while at_least > 0 or most < connections:
            at_least -= 1
            assert time.monotonic() < deadline
            assert wire.send(post("flooded", message("during"))).answer().status == 200
            most = max(most, open_files(wire))
    assert most < limit - 100


def open_files(wire: RawConnection) -> int:
    """Asks the broker for their number on a connection that it has already."""
    found = re.search(
        rb"^process_open_fds (\S+)$", wire.send(request(b"GET /metrics")).answer().body, re.MULTILINE
    )
    assert found is not None
    return int(float(found[1]))
