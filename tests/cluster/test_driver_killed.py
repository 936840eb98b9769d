"""The driver is killed between the ledger's commit and Spark's, again and again.

Contract: that of `tests/support/killed_group.py`. LAKEMQ_KILL_ROUNDS sets the number of kills (default 1;
`make chaos ONLY=DRIVER ROUNDS=20`). The run after the last kill is this process's own.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.consume import consume
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.killed_group import KilledGroup

ROUNDS = int(os.environ.get("LAKEMQ_KILL_ROUNDS", "1"))
BATCH = 400


def test_a_driver_killed_after_the_ledger_commit_leaves_one_row_per_attempt(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    group = KilledGroup(broker, tmp_path, "killed_between", BATCH)
    group.post((ROUNDS + 1) * BATCH)
    killed_in = []
    for _ in range(ROUNDS):
        with ConsumerProcess(tmp_path, *group.arguments, halt=True) as consumer:
            killed_in.append(consumer.halted_at())
            consumer.kill()
    consume(group.settings, lambda: spark)
    # A batch found in the ledger is not handled again, so each round got to a new one.
    assert killed_in == sorted(set(killed_in)), killed_in
    group.check()
