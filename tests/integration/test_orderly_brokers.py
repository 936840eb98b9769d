"""An orderly group over the brokers of a cluster, in runs that end by themselves.

Contract: a run that reads a queue no further, since too much of it is parked, says all the same who was away.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from lakemq.client import Client, Message
from store_native.errors import LakeMQError
from tests.support.available_runs import available_now
from tests.support.dispatch_barrier import await_dispatch
from tests.support.name_servers import BrokersOfCluster

HANDLER = """
def handle(message):
    if message.text == "fails":
        raise ValueError("not yet")
"""


def test_a_run_with_a_paused_queue_names_the_broker_that_is_away(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orderly_brokers.py").write_text(HANDLER)
    bounds = {"max_parked": 1, "max_messages_per_batch": 2, "retry_delays": "2h"}
    more = {"topics": ("orders",), "mode": "orderly", **bounds}
    settings = available_now("paused", "orderly_brokers:handle", tmp_path, **more)
    with BrokersOfCluster(tmp_path / "cluster") as cluster:
        for name in ("broker-a", "broker-b"):
            cluster.master(name)
        with Client(cluster.endpoint) as client:
            client.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
            cluster.wait_for_topic("orders", "broker-a", "broker-b")
        settings = replace(settings, endpoint=cluster.endpoint)
        with cluster.brokers["broker-a"].client() as client:
            client.send_many("orders", [Message(text) for text in ("fails", *"bcdefg")])
            await_dispatch(client)
        consume(settings, lambda: spark)
        parked = LedgerReader(tmp_path / "ledger").sql("SELECT * FROM parked_messages").num_rows
        assert 0 < parked < 6, "the queue was paused"
        cluster.brokers["broker-b"].kill()
        with pytest.raises(LakeMQError, match="but at broker-b, which does not answer"):
            consume(settings, lambda: spark)
