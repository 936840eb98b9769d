"""A group's report of its offsets to a real broker.

Contract: one topic that is gone keeps no other topic's offsets from the broker.
"""

from __future__ import annotations

import logging

import pytest

from jobs.group.offset_report import OffsetReport
from jobs.runtime.group_brokers import GroupBrokers
from jobs.runtime.job_lease import job_lease
from jobs.runtime.lease_owner import LeaseOwner
from structured_streaming.offsets import MessageQueue
from tests.support.broker_process import BrokerProcess


def test_offsets_of_other_topics_are_reported_where_one_topic_is_gone(
    shared_broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    client = shared_broker.client()
    for topic in ("gone", "left", "kept"):
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
        client.send_ndjson(topic, b'{"body":"1"}\n{"body":"2"}')
    client.put_group("g")
    brokers = GroupBrokers(client)
    (name,) = brokers.each()
    lease = job_lease(client, "g", LeaseOwner.here("checkpoint"), 30_000)
    lease.acquire()
    report = OffsetReport("g", brokers, lease)
    client.delete_topic("gone")
    with caplog.at_level(logging.WARNING):
        report.commit({MessageQueue(topic, name, 0): 2 for topic in ("gone", "left", "kept")})
    assert client.group_offsets("g") == {("left", 0): 2, ("kept", 0): 2}
    assert len(caplog.records) == 1
    assert "topic[gone] not exist" in caplog.text
    client.delete_topic("left")
    client.delete_topic("kept")
    caplog.clear()
    report.commit({MessageQueue(topic, name, 0): 2 for topic in ("left", "kept")})
    assert len(caplog.records) == 1, "none is left: it is said once"
    lease.release()
