"""A start of a group that is refused leaves nothing at the broker.

Contract: what the start made there is deleted again, as long as no batch can have been handled; what was
there before stays.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from jobs.consume import WRITTEN, consume, sole_writer
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from store_native.errors import InternalError, LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.name_servers import BrokersOfCluster

TOPIC = "refused"


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Client:
    client = shared_broker.client()
    client.put_topic(TOPIC, read_queue_nums=1, write_queue_nums=1)
    return client


@pytest.fixture
def settings(client: Client, tmp_path: Path) -> ConsumeSettings:
    return ConsumeSettings(
        f"g-{tmp_path.name}",
        (TOPIC,),
        HandlerTarget("json:loads"),
        ledger_at(str(tmp_path / "ledger")),
        endpoint=client.endpoint,
    )


def left(client: Client, settings: ConsumeSettings) -> list[str]:
    """What there is of a group at the broker."""
    names = [group.group for group in client.groups()] + [topic.topic for topic in client.topics()]
    return sorted(name for name in names if settings.group in name)


def no_session() -> Any:
    raise InternalError("SYSTEM_ERROR", "Spark did not start")


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": (TOPIC, "not-there")},
        {"send_to": ("not-there",)},
        {"tags": "A | B"},
        {"retry_delays": "7s"},
    ],
    ids=str,
)
def test_what_the_broker_refuses_makes_no_group(
    wrong: dict[str, Any], client: Client, settings: ConsumeSettings
) -> None:
    with pytest.raises(LakeMQError, match=r"not-there|--tags|7s"):
        consume(dataclasses.replace(settings, **wrong), no_session)
    assert left(client, settings) == []


def test_a_start_that_stood_still_deletes_nothing_of_the_job_that_has_the_group_by_now(
    client: Client, settings: ConsumeSettings
) -> None:
    def session_after_a_long_stop() -> Any:
        with pytest.raises(LakeMQError) as held:
            client.acquire_lease(settings.group, "another", 30_000)
        client.release_lease(settings.group, held.value.context["owner"])  # as if its time had run out
        client.acquire_lease(settings.group, "another", 30_000)
        return no_session()

    with pytest.raises(LakeMQError, match="Spark did not start"):
        consume(settings, session_after_a_long_stop)
    assert left(client, settings) == sorted(
        [settings.group, f"%RETRY%{settings.group}", f"%DLQ%{settings.group}"]
    )


def test_a_ledger_that_another_job_writes_makes_no_group(client: Client, settings: ConsumeSettings) -> None:
    with sole_writer(settings.ledger, WRITTEN), pytest.raises(LakeMQError, match="STORE_LOCKED"):
        consume(settings, no_session)
    assert left(client, settings) == []


def test_spark_that_does_not_start_leaves_no_group(client: Client, settings: ConsumeSettings) -> None:
    with pytest.raises(InternalError, match="Spark did not start"):
        consume(settings, no_session)
    assert left(client, settings) == []
    assert client.acquire_lease(settings.group, "the next one", 1_000)


def test_a_ledger_of_another_version_leaves_no_group(
    client: Client, settings: ConsumeSettings, tmp_path: Path
) -> None:
    write_deltalake(tmp_path / "ledger" / DELIVERIES.name, pa.table({"verdict": [1]}))
    with pytest.raises(LakeMQError, match=r"ARGUMENT_ILLEGAL.*verdict"):
        consume(settings, lambda: SimpleNamespace())  # type: ignore[arg-type,return-value]
    assert left(client, settings) == []


def test_a_group_that_was_there_stays_with_its_offsets(client: Client, settings: ConsumeSettings) -> None:
    client.put_group(settings.group)
    client.commit_offsets(settings.group, {(TOPIC, 0): 0})
    before = left(client, settings)
    with pytest.raises(InternalError, match="Spark did not start"):
        consume(settings, no_session)
    assert left(client, settings) == before
    assert client.group_offsets(settings.group) == {(TOPIC, 0): 0}


def test_a_group_that_somebody_else_drives_stays(client: Client, settings: ConsumeSettings) -> None:
    client.acquire_lease(settings.group, "somebody else", 60_000)
    with pytest.raises(LakeMQError, match="LEASE_CONFLICT"):
        consume(settings, no_session)
    assert settings.group in left(client, settings)


def test_no_broker_of_several_keeps_the_group(settings: ConsumeSettings, tmp_path: Path) -> None:
    with BrokersOfCluster(tmp_path / "cluster") as cluster:
        brokers = [cluster.master(name).client() for name in ("broker-a", "broker-b")]
        for broker in brokers:
            broker.put_topic(TOPIC, read_queue_nums=1, write_queue_nums=1)
        cluster.wait_for_topic(TOPIC, "broker-a", "broker-b")
        here = dataclasses.replace(settings, endpoint=cluster.endpoint)
        with pytest.raises(InternalError, match="Spark did not start"):
            consume(here, no_session)
        assert [left(broker, here) for broker in brokers] == [[], []]

        brokers[0].put_topic("sent-to", read_queue_nums=1, write_queue_nums=1)
        with pytest.raises(LakeMQError, match=r"--send-to: .*sent-to"):
            consume(dataclasses.replace(here, send_to=("sent-to",)), no_session)
        assert [left(broker, here) for broker in brokers] == [[], []]
