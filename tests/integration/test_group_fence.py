"""Two drivers of one group: whatever the first one does after it lost its lease, no row is doubled.

Contract: at most one row per key of `deliveries`, on a ledger on a path and on one in a catalog, also
when a driver stops for any time between its last look at the lease and its commit.
LAKEMQ_FENCE_ROUNDS sets the number of rounds (default 2: one of each way to be late).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from delta_tables.ledger.location import LedgerLocation
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_query import select
from delta_tables.views import TABLES
from jobs.group.fence import GroupFence
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from tests.support.broker_process import BrokerProcess
from tests.support.held_handler import HeldHandler
from tests.support.spark_streams import TRIGGER
from tests.support.two_drivers import WAIT_S, Driver

ROUNDS = int(os.environ.get("LAKEMQ_FENCE_ROUNDS", "2"))
EACH = 2

Ledger = Callable[[str], LedgerLocation]


@pytest.fixture(params=["path", pytest.param("catalog", marks=pytest.mark.nightly)])
def ledger(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LedgerLocation:
    """An empty ledger of either kind."""
    if request.param == "path":
        location = ledger_at(str(tmp_path / "ledger"))
    else:
        schema = f"fence_{abs(hash(request.node.name)) % 10**8}"
        spark.sql(f"CREATE SCHEMA {schema}")
        location = ledger_at(f"spark_catalog.{schema}")
    location.create(*TABLES, spark=spark)
    return location


def test_a_driver_that_lost_its_lease_between_check_and_commit_adds_no_row(
    spark: SparkSession, shared_broker: BrokerProcess, ledger: LedgerLocation, tmp_path: Path
) -> None:
    client = shared_broker.client()
    name = "path" if isinstance(ledger, PathLedger) else "catalog"
    topic, group, module = f"fenced-{name}", f"fenced-group-{name}", f"handlers_of_{tmp_path.name}"
    client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    client.put_group(group)
    handler = HeldHandler(tmp_path, module)

    def settings(handler: str) -> ConsumeSettings:
        return ConsumeSettings(
            group,
            (topic,),
            HandlerTarget(f"{module}:{handler}", "auto", (str(tmp_path),)),
            ledger,
            checkpoint=tmp_path,
            endpoint=shared_broker.endpoint,
            start="earliest",
            trigger=TRIGGER,
        )

    for number in range(ROUNDS):
        client.send_ndjson(topic, "\n".join(f'{{"body":"{number}"}}' for _ in range(EACH)).encode())
        checked, go_on = threading.Event(), threading.Event()
        handler.hold_the_next()
        inside_commit = number % 2 == 1  # Delta's transaction has begun, its handlers run

        def hold(batch_id: int, checked: threading.Event = checked, go_on: threading.Event = go_on) -> None:
            checked.set()
            assert go_on.wait(WAIT_S)

        if inside_commit:
            late = Driver(spark, client, settings("hold"), tmp_path / f"late-{number}")
            late.wait_for(handler.handling.exists)
        else:
            late = Driver(spark, client, settings("accept"), tmp_path / f"late-{number}", hold)
            late.wait_for(checked.is_set)
        late.lose_lease()
        newer = Driver(spark, client, settings("accept"), tmp_path / f"newer-{number}")
        try:
            newer.wait_for(newer.committed.is_set)
            handler.go_on.touch()
            go_on.set()
            assert "LEASE_CONFLICT" in late.await_end()
        finally:
            handler.go_on.touch()
            go_on.set()
            late.stop()
            newer.stop()
        assert not late.committed.is_set()

    ((rows, keys),) = select(
        ledger,
        "SELECT count(*) AS n, count(DISTINCT concat_ws('/', queue_id, queue_offset)) AS d FROM deliveries",
        spark,
    )
    assert (rows, keys) == (ROUNDS * EACH, ROUNDS * EACH)
    assert select(ledger, "SELECT * FROM delivery_gaps", spark) == []


def test_a_ledger_that_outlived_its_brokers_memory_is_written_again(
    spark: SparkSession, shared_broker: BrokerProcess, ledger: LedgerLocation
) -> None:
    asked: list[int] = []

    class Held:
        epoch = 1

        def confirm(self) -> None:
            asked.append(1)

    session = spark.newSession()
    rows = session.createDataFrame([], DELIVERIES.ddl)

    def fence(minutes: int) -> GroupFence:
        return GroupFence(session, ledger, DELIVERIES, "g", Held(), minutes=lambda: minutes)  # type: ignore[arg-type]

    first, second, third = fence(50), fence(50), fence(50)
    first.take()
    first.append(rows, 0)
    assert asked == []
    second.take()  # a broker without a memory grants epoch 1 again
    assert asked == [1]
    third.take()  # and again, in the same minute
    assert asked == [1, 1, 1]
    with pytest.raises(Exception, match="LEASE_CONFLICT"):
        second.append(rows, 7)
    third.append(rows, 0)
