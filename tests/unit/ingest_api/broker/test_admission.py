"""Admission: each bound turns away with a reason and a counter, and gives back what it took."""

from __future__ import annotations

import pytest

from ingest_api.broker.admission import Admission
from ingest_api.broker.metrics import BrokerMetrics
from ingest_api.broker.settings import LimitSettings
from store_native.errors import Unavailable


def admission(**limits: float) -> tuple[Admission, BrokerMetrics]:
    metrics = BrokerMetrics()
    return Admission(LimitSettings(**limits), metrics), metrics  # type: ignore[arg-type]  # a test's own names


def test_a_full_send_queue_turns_away_until_one_leaves() -> None:
    gate, metrics = admission(max_inflight_sends=2)
    gate.enter()
    gate.enter()
    with pytest.raises(Unavailable) as refused:
        gate.enter()
    assert refused.value.code == "SYSTEM_BUSY"
    assert "nothing was stored" in refused.value.detail
    assert metrics.refusals == {"send_queue_full": 1}
    gate.leave()
    gate.enter()
    assert gate.inflight == 2


def test_large_bodies_share_a_bound_but_one_always_fits() -> None:
    gate, metrics = admission(max_parsing_bytes=100)
    first = gate.reserve(150)
    with pytest.raises(Unavailable) as refused:
        gate.reserve(1)
    assert refused.value.code == "TOO_MANY_REQUESTS"
    assert metrics.refusals == {"parsing_bytes": 1}
    gate.release(first)
    assert gate.parsing_bytes == 0
    gate.reserve(100)


def test_a_full_disk_refuses_until_there_is_some_space_again() -> None:
    gate, metrics = admission(disk_full_ratio=0.9)
    gate.set_disk_used(0.9)
    gate.enter()
    gate.set_disk_used(0.901)
    with pytest.raises(Unavailable) as refused:
        gate.enter()
    assert refused.value.code == "DISK_FULL"
    gate.set_disk_used(0.895)
    assert gate.disk_full, "it must not flap at the border"
    gate.set_disk_used(0.85)
    gate.enter()
    assert metrics.refusals == {"disk_full": 1}


def test_a_body_that_waited_too_long_for_a_thread_is_refused() -> None:
    gate, metrics = admission(send_queue_wait_s=3.0)
    gate.check_queue_wait(2.9)
    with pytest.raises(Unavailable) as refused:
        gate.check_queue_wait(3.1)
    assert refused.value.code == "SYSTEM_BUSY"
    assert metrics.refusals == {"send_queue_wait": 1}


def test_a_stopping_broker_takes_nothing_new() -> None:
    gate, _ = admission()
    gate.closing = True
    with pytest.raises(Unavailable) as refused:
        gate.enter()
    assert refused.value.code == "SERVICE_NOT_AVAILABLE"


def test_what_is_open_is_what_enters() -> None:
    gate, metrics = admission(max_inflight_sends=1, disk_full_ratio=0.5)
    assert gate.open

    def shut(reason: str, code: str) -> None:
        assert not gate.open
        for ask in (gate.check, gate.enter):
            with pytest.raises(Unavailable) as refused:
                ask()
            assert (refused.value.code, refused.value.context["reason"]) == (code, reason)
            assert refused.value.detail.endswith("; nothing was stored")
        assert metrics.refusals.pop(reason) == 2

    gate.enter()
    shut("send_queue_full", "SYSTEM_BUSY")
    gate.leave()
    gate.set_disk_used(0.625)
    assert gate.disk_used_ratio == 0.625
    shut("disk_full", "DISK_FULL")
    gate.set_disk_used(0.0)
    gate.dispatch_failure = "no descriptor left"
    shut("dispatch_failure", "SERVICE_NOT_AVAILABLE")
    gate.dispatch_failure = None
    gate.closing = True
    shut("closing", "SERVICE_NOT_AVAILABLE")
    gate.closing = False
    gate.enter()
    assert gate.inflight == 1


def test_a_bound_is_inside() -> None:
    gate, _ = admission(max_parsing_bytes=100, send_queue_wait_s=3.0)
    gate.reserve(40)
    gate.reserve(60)
    gate.check_queue_wait(3.0)
    with pytest.raises(Unavailable):
        gate.check_capacity(1)
    assert gate.parsing_bytes == 100, "what is refused is not counted"


def test_before_anything_is_measured_all_is_open() -> None:
    gate, _ = admission()
    assert (gate.disk_full, gate.disk_used_ratio, gate.closing, gate.inflight) == (False, 0.0, False, 0)
