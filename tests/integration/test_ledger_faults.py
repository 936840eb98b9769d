"""Each Delta commit of a group fails, before it or after it with the answer lost; then the group goes on.

Contract, on a ledger on a path and on one in a catalog: one row per delivery key and none missing; what is in
the ledger is not handled again; no offset (consumer_offsets, the broker's) is ahead of the outcomes; each
retry and each dead letter is sent once and recorded once.

One group goes through all the faults: each run of a stream ends at the next one, and its successor goes on
from the checkpoint it left. The group's stream and its reactions fail alone, so that a run
costs one stream's start; the last run is the whole group's. Each run of the group's stream has four messages
of its own, one of each fate. The empty commits that set the fence fail nightly: they are the same on a path
and in a catalog but for the way a table is named.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger import ledger_at
from delta_tables.views import TABLES
from jobs.group.map_arrow import map_in_arrow
from jobs.reactions import ReactionJob
from tests.support.broker_process import BrokerProcess
from tests.support.catalog_files import files_of
from tests.support.faulty_group import (
    BEFORE_AND_AFTER,
    BROADCAST,
    FATES,
    FENCES,
    IN_BROADCAST,
    OF_DEAD_LETTERS,
    OF_THE_GROUP,
    Commit,
    Group,
)
from tests.support.waiting import wait_until


class MortalReactions(ReactionJob):
    """Reactions whose workers die: before what a batch does is done, and once it is."""

    deaths: ClassVar[int]

    def process_batch(self, rows: DataFrame, batch_id: int) -> None:
        self._die(rows)
        super().process_batch(rows, batch_id)
        self._die(rows)

    def _die(self, rows: DataFrame) -> None:
        if MortalReactions.deaths > 0:
            MortalReactions.deaths -= 1
            map_in_arrow(rows.select("attempt"), _end_worker, "attempt int").collect()


def _end_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def go_through(group: Group, left_out: tuple[Commit, ...] = ()) -> None:
    """Lets each commit fail before and after it, starts again each time, and looks at the ledger."""
    for commit in (commit for commit in OF_THE_GROUP if commit not in left_out):
        for when in BEFORE_AND_AFTER:
            group.post()
            group.fail_alone(commit, when)
            group.check_safe()
    for commit in (commit for commit in OF_DEAD_LETTERS if commit not in left_out):
        for when in BEFORE_AND_AFTER:
            group.fail_dead_letters(commit, when)
            group.check_safe()
    group.react_without_a_commit()
    group.post()
    group.run()
    group.check_done(FATES)


def test_a_worker_of_the_reactions_that_is_killed_ends_no_group_unless_it_is_killed_each_time(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    ledger = ledger_at(str(tmp_path / "ledger"))
    ledger.create(*TABLES)
    group = Group(spark, shared_broker, ledger, tmp_path, "concurrent")
    group.post()
    group.fail_alone(Commit(CONSUMER_OFFSETS, 1), "after")
    MortalReactions.deaths = 3
    failed = group.react(MortalReactions)
    assert failed is not None
    assert MortalReactions.deaths == 0
    MortalReactions.deaths = 2
    assert group.react(MortalReactions) is None
    assert MortalReactions.deaths == 0
    group.check_safe()
    assert group.sent_back() == (2, 1)


@pytest.mark.nightly
def test_retries_that_are_due_when_their_batch_is_repeated_have_the_keys_they_had(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    ledger = ledger_at(str(tmp_path / "ledger"))
    ledger.create(*TABLES)
    group = Group(spark, shared_broker, ledger, tmp_path, "concurrent", retry_delays="10s")
    group.post()
    group.fail_alone(Commit(CONSUMER_OFFSETS, 1), "after")
    assert group.react() is None
    group.forget_commit()
    wait_until(group.all_due, 30)
    assert group.react() is None
    assert group.sent_back() == (2, 1)
    group.check_safe()


@pytest.mark.parametrize(
    "left_out",
    [pytest.param(FENCES, id="rows"), pytest.param((), id="fences too", marks=pytest.mark.nightly)],
)
def test_a_commit_that_fails_or_whose_answer_is_lost_on_a_path(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, left_out: tuple[Commit, ...]
) -> None:
    ledger = ledger_at(str(tmp_path / "ledger"))
    ledger.create(*TABLES)
    group = Group(spark, shared_broker, ledger, tmp_path, "concurrent")
    go_through(group, left_out)


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_commit_that_fails_or_whose_answer_is_lost_in_a_catalog(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path, everywhere: bool
) -> None:
    schema = "spark_catalog.ledger_with_faults"
    spark.sql(f"CREATE SCHEMA {schema}")
    try:
        ledger = ledger_at(schema)
        ledger.create(*TABLES, spark=spark)
        files = files_of(spark, "ledger_with_faults")
        group = Group(spark, shared_broker, ledger, tmp_path, "concurrent", read_at=files)
        if everywhere:
            go_through(group)
        else:
            group.post()
            group.fail_alone(Commit(DELIVERIES, 2), "after")
            group.check_safe()
            group.post()
            group.run()
            group.check_done(FATES)
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.nightly
def test_a_commit_that_fails_or_whose_answer_is_lost_in_broadcast_mode(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    group = Group(spark, shared_broker, ledger_at(str(tmp_path / "ledger")), tmp_path, "broadcast")
    for commit in IN_BROADCAST:
        for when in BEFORE_AND_AFTER:
            group.post()
            group.fail(commit, when)
            group.check_safe()
    group.post()
    group.run()
    group.check_done(BROADCAST)
