"""One-way sends (``Prefer: respond-async``): answered before their flush, and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.faulty_disk import FaultyDisk
from tests.support.http import Http
from tests.support.metrics import Samples
from tests.support.waiting import wait_until

JSON = "application/json"


@pytest.mark.parametrize("query", [{}, {"results": "full"}], ids=["fast path", "slow path"])
def test_a_one_way_send_is_answered_though_its_flush_fails_later(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, query: dict[str, str]
) -> None:
    """The flush takes a second and fails: a send that waited for it would be answered 503."""
    disk = FaultyDisk(tmp_path)
    broker = start_broker(environment=disk.environment)
    http = Http(broker.endpoint)
    assert http.send("t", b'{"body":"safe"}', JSON).status == 200
    http.settle()
    disk.slow_down()
    disk.fail()
    answer = http.send("t", b'{"body":"hoped for"}', JSON, {"Prefer": "respond-async"}, **query)
    assert (answer.status, answer.json["status"]) == (202, "SEND_OK")
    assert answer.headers["preference-applied"] == "respond-async"
    wait_until(lambda: http.get("//readyz").status == 503)
    http.get("//readyz").problem(503, "STORE_POISONED")
    page = Samples(http.get("//metrics").body.decode())
    counted = [
        sample.value for sample in page.named("lakemq_messages_in_total") if sample.labels["topic"] == "t"
    ]
    assert counted == [2]
