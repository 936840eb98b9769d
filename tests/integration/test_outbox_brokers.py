"""Verdicts that send messages over the brokers of a cluster, one of which is away for a while.

Contract: what is sent waits for the broker, the group goes on with the others; when it is back each message
is in its topic once, over all brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq.client import Client, Message
from store_native.errors import LakeMQError
from tests.support.available_runs import available_now
from tests.support.consume_steps import consume_while
from tests.support.name_servers import BrokersOfCluster
from tests.support.spark_streams import TRIGGER
from tests.support.waiting import wait_until

BOTH = ("broker-a", "broker-b")
SPARK_S = 120.0
HANDLER = """
from lakemq.handler import Outgoing, Verdict

def handle(message):
    return Verdict.ack(send=Outgoing("invoices", message.body, sharding_key=message.text))
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokersOfCluster]:
    with BrokersOfCluster(tmp_path / "cluster") as started:
        for name in BOTH:
            started.master(name)
        with Client(started.endpoint) as client:
            for topic in ("orders", "invoices"):
                client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
                started.wait_for_topic(topic, *BOTH)
        yield started


def send(cluster: BrokersOfCluster, name: str, first: int, count: int) -> None:
    with cluster.brokers[name].client() as client:
        client.send_many("orders", [Message(str(number)) for number in range(first, first + count)])


def invoices(cluster: BrokersOfCluster, name: str) -> list[int]:
    found: list[int] = []
    with cluster.brokers[name].client() as client:
        for queue in client.queues("invoices"):
            offset = 0
            while offset < queue.max_offset:
                pulled = client.pull("invoices", queue.queue_id, offset, max=1000)
                found += [int(message.text) for message in pulled.messages]
                offset = pulled.next_offset
    return found


def test_what_verdicts_send_waits_for_a_broker_that_is_away_and_the_group_goes_on(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    (tmp_path / "over_brokers.py").write_text(HANDLER)
    settings = ConsumeSettings(
        group="g",
        topics=("orders",),
        handler=HandlerTarget("over_brokers:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=cluster.endpoint,
        start="earliest",
        trigger=TRIGGER,
        send_to=("invoices",),
    )
    reader = tmp_path / "ledger"

    def counted(text: str) -> Any:
        return LedgerReader(reader).sql(text).column(0)[0].as_py()

    def await_sent(count: int) -> None:
        text = "SELECT count(*) FROM sent_messages"
        wait_until(lambda: counted(text) == count, SPARK_S, lambda: str(counted(text)))

    def steps() -> None:
        await_sent(40)
        cluster.brokers["broker-b"].kill()
        send(cluster, "broker-a", 40, 20)
        handled = "SELECT count(*) FROM deliveries"
        wait_until(lambda: counted(handled) == 60, SPARK_S, lambda: str(counted(handled)))
        send(cluster, "broker-a", 60, 20)  # the outbox waits by now, or will: the group has the cores
        wait_until(lambda: counted(handled) == 80, SPARK_S, lambda: str(counted(handled)))
        assert counted("SELECT count(*) FROM pending_sends") == 40
        cluster.brokers["broker-b"].start()
        await_sent(80)

    send(cluster, "broker-a", 0, 20)
    send(cluster, "broker-b", 20, 20)
    consume_while(settings, spark, steps)
    there = {name: invoices(cluster, name) for name in BOTH}
    assert all(there.values()), "sharding keys are of both brokers"
    assert Counter(there["broker-a"] + there["broker-b"]) == Counter(range(80))


@pytest.mark.nightly
def test_a_run_over_what_is_there_names_the_broker_that_is_away_and_the_next_one_sends_the_rest(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "over_brokers_now.py").write_text(HANDLER)
    more = {"topics": ("orders",), "endpoint": cluster.endpoint, "send_to": ("invoices",)}
    settings = available_now("now", "over_brokers_now:handle", tmp_path, **more)
    monkeypatch.setattr("jobs.outbox.job.LEFT_OUT_S", 1.0)
    send(cluster, "broker-a", 0, 20)
    consume(settings, lambda: spark)
    send(cluster, "broker-a", 20, 20)
    cluster.brokers["broker-b"].kill()
    with pytest.raises(LakeMQError, match="broker-b does not answer"):
        consume(settings, lambda: spark)
    cluster.brokers["broker-b"].start()
    cluster.wait_for_topic("invoices", *BOTH)
    consume(settings, lambda: spark)
    sent = [number for name in BOTH for number in invoices(cluster, name)]
    assert Counter(sent) == Counter(range(40))


@pytest.mark.nightly
def test_a_first_run_that_sends_goes_on_while_a_broker_of_the_cluster_is_away(
    spark: SparkSession, cluster: BrokersOfCluster, tmp_path: Path
) -> None:
    (tmp_path / "over_brokers_first.py").write_text(HANDLER)
    settings = ConsumeSettings(
        group="first",
        topics=("orders",),
        handler=HandlerTarget("over_brokers_first:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=cluster.endpoint,
        start="earliest",
        trigger=TRIGGER,
        send_to=("invoices",),
    )
    # The group begins where both brokers say; what it sends has not been asked for by then.
    consume(replace(settings, send_to=(), until_idle_s=0.1), lambda: spark)
    cluster.brokers["broker-b"].kill()
    reader = tmp_path / "ledger"

    def counted(text: str) -> Any:
        return LedgerReader(reader).sql(text).column(0)[0].as_py()

    def steps() -> None:
        send(cluster, "broker-a", 0, 20)
        handled = "SELECT count(*) FROM deliveries"
        wait_until(lambda: counted(handled) == 20, SPARK_S, lambda: str(counted(handled)))
        send(cluster, "broker-a", 20, 20)
        wait_until(lambda: counted(handled) == 40, SPARK_S, lambda: str(counted(handled)))
        assert counted("SELECT count(*) FROM sent_messages") == 0
        cluster.brokers["broker-b"].start()
        sent = "SELECT count(*) FROM sent_messages"
        wait_until(lambda: counted(sent) == 40, SPARK_S, lambda: str(counted(sent)))

    consume_while(settings, spark, steps)
    sent = [number for name in BOTH for number in invoices(cluster, name)]
    assert Counter(sent) == Counter(range(40))
