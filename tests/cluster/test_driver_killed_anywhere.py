"""The driver is killed (-9) at each file by which a batch becomes part of the ledger and of the checkpoint.

Contract: that of `tests/support/killed_group.py`. The source's own commit does nothing for a group: the job
reports offsets, to the ledger and the brokers, before Spark's commit. LAKEMQ_KILL_ROUNDS sets how often each
file is met (default 1; `make chaos ONLY=FILES ROUNDS=5`). The run after the last kill is this process's own.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.consume import consume
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.killed_group import KilledGroup

ROUNDS = int(os.environ.get("LAKEMQ_KILL_ROUNDS", "1"))
BATCH = 200
LIBRARY = Path(__file__).parents[1] / "support" / "halting_disk.c"


class Point(NamedTuple):
    """Before or after a file of a program whose path matches, the first unless another number is given."""

    program: str
    side: str
    pattern: str
    number: int = 1


BEHIND_THE_FENCE = 2
"""The first commit of a run to the table sets the fence, the next one has the outcomes."""


POINTS = {
    "planned": Point("python", "before", "*/group/*plan*"),
    "during the offset log": Point("java", "before", "*/group/offsets/[0-9]*"),
    "before anything is written": Point("python", "before", "*/deliveries/*.parquet"),
    "files written": Point("python", "before", "*/deliveries/_delta_log/*.json", BEHIND_THE_FENCE),
    "outcomes committed": Point("python", "after", "*/deliveries/_delta_log/*.json", BEHIND_THE_FENCE),
    "during a Delta checkpoint": Point(
        "python", "before", "*/deliveries/_delta_log/*.checkpoint*.parquet", BEHIND_THE_FENCE
    ),
    "offsets committed": Point("python", "after", "*/consumer_offsets/_delta_log/*.json"),
    "before Spark's commit": Point("java", "before", "*/group/commits/[0-9]*"),
    "after Spark's commit": Point("java", "after", "*/group/commits/[0-9]*"),
}


@pytest.mark.nightly
def test_a_driver_killed_at_any_file_of_a_batch_leaves_one_row_per_attempt(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    group = KilledGroup(broker, tmp_path, "killed_anywhere", BATCH)
    library, fifo = tmp_path / "halting_disk.so", tmp_path / "halted"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, LIBRARY, "-ldl"], check=True)
    for number in range(ROUNDS):
        for name, point in POINTS.items():
            group.post(BATCH)
            halt = f"{fifo} {point.program} {point.side} {point.number} {point.pattern}"
            preloaded = {"LD_PRELOAD": str(library), "LAKEMQ_TEST_HALT": halt}
            with ConsumerProcess(tmp_path, *group.arguments, halts=True, environment=preloaded) as consumer:
                consumer.halted_at()
                consumer.kill()
            print(f"round {number}: killed {name}", flush=True)
            if group.posted == BATCH:  # the tables are made: each commit makes a checkpoint from here on
                deliveries = DeltaTable(str(tmp_path / "ledger" / "deliveries"))
                deliveries.alter.set_table_properties({"delta.checkpointInterval": "1"})
    consume(group.settings, lambda: spark)
    group.check()
