"""The fast path of small sends: answers keep their order, and none shows which path it took."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.faulty_disk import FaultyDisk
from tests.support.http import raw_exchange


def request(topic: str, body: bytes, *lines: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"POST /api/v1/topics/%b/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n" % (
        topic.encode(),
        kind,
    )
    head += b"Content-Length: %d\r\n" % len(body)
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def message(text: str) -> bytes:
    return json.dumps({"body": text, "queue_id": 0}).encode()


def answers(data: bytes) -> list[tuple[int, dict[str, object]]]:
    """Returns status and JSON of each answer on a connection."""
    out = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
        out.append((int(lines[0].split()[1]), json.loads(rest[:length])))
        data = rest[length:]
    return out


CLOSE = b"Connection: close"


def test_pipelined_sends_are_answered_in_their_order(shared_broker: BrokerProcess) -> None:
    sends = [request("order", message(str(n))) for n in range(40)]
    sends.insert(10, b"GET /api/v1/topics/order HTTP/1.1\r\nHost: localhost\r\n\r\n")
    sends.insert(20, request("order", b"{broken"))
    sends.append(request("order", message("last"), CLOSE))
    found = answers(raw_exchange(shared_broker.port, b"".join(sends)))
    assert [status for status, _ in found] == [200] * 10 + [200] + [200] * 9 + [400] + [200] * 22
    offsets = [
        answer["queue_offset"] for status, answer in found if "queue_offset" in answer and status == 200
    ]
    assert offsets == list(range(41))


def test_a_send_in_any_number_of_pieces_is_the_same_send(shared_broker: BrokerProcess) -> None:
    whole = request("pieces", message("in pieces"))
    for cut in range(1, len(whole)):
        with socket.create_connection(("127.0.0.1", shared_broker.port), timeout=10) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(whole[:cut])
            sock.sendall(whole[cut:])
            ((status, answer),) = answers(sock.recv(65536))
        assert (status, answer["queue_offset"]) == (200, cut - 1)


@pytest.mark.parametrize(
    "line", [b"X-Request-Id: 7", b"Transfer-Encoding: chunked", b"Prefer: respond-async"]
)
def test_headers_out_of_the_ordinary_change_what_they_should(
    shared_broker: BrokerProcess, line: bytes
) -> None:
    body = message("x")
    if b"chunked" in line:
        data = request("headers", b"").replace(b"Content-Length: 0\r\n", line + b"\r\n")
        data = data + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        data = request("headers", body, line)
    ((status, answer), (last, _)) = answers(
        raw_exchange(shared_broker.port, data + request("headers", body, CLOSE))
    )
    assert (status, last) == (202 if b"Prefer" in line else 200, 200)
    assert answer["status"] == "SEND_OK"


def test_what_is_behind_a_waiting_send_waits_too(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    broker = BrokerProcess(tmp_path / "broker", environment=disk.environment)
    try:
        disk.slow_down()
        data = b"".join(request("slow", message(str(n))) for n in range(5))
        data += b"GET /api/v1/topics/slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        found = answers(raw_exchange(broker.port, data))
        assert [status for status, _ in found] == [200] * 6
        assert [answer.get("queue_offset") for _, answer in found[:5]] == list(range(5))
        assert found[5][1]["topic"] == "slow"
    finally:
        disk.recover()
        broker.close()


def test_a_client_that_left_while_its_send_waited_harms_nobody(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    broker = BrokerProcess(tmp_path / "broker", environment=disk.environment)
    try:
        disk.slow_down()
        for n in range(20):
            with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as sock:
                sock.sendall(request("left", message(str(n))))
        disk.recover()
        ((status, answer),) = answers(raw_exchange(broker.port, request("left", message("stays"), CLOSE)))
        assert status == 200
        assert int(str(answer["queue_offset"])) <= 20
    finally:
        disk.recover()
        broker.close()
