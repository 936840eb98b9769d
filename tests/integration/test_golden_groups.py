"""Ledgers and checkpoints that earlier versions wrote, gone on with by this one.

Contract: a group of a released version goes on where it was: no delivery is repeated, none is left out, the
rows of before are as they were. `python -m tests.golden.make VERSION` makes the files of a release.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import WRITTEN, consume
from lakemq.client import Client
from store_native.errors import InvalidRequest
from tests.support.broker_process import BrokerProcess
from tests.support.golden import GOLDEN
from tests.support.golden_group import BROKER_ARGUMENTS, FIRST, deliveries, group_settings, post

VERSIONS = sorted(path.parent.name for path in GOLDEN.glob("*/group.json"))


def test_there_are_golden_groups() -> None:
    assert "0.1.0" in VERSIONS


def give_back_lease(client: Client, group: str) -> None:
    """Ends the lease of the job that wrote the files, which a store keeps for a while over each start.

    On the machine of that job it is seen to be dead; elsewhere it is waited out, or with another checkpoint
    taken for a driver of its own.
    """
    try:
        client.acquire_lease(group, "nobody", 1_000)
    except InvalidRequest as held:
        client.release_lease(group, held.context["owner"])
    else:
        client.release_lease(group, "nobody")


@pytest.mark.parametrize("checkpoint", ["kept", pytest.param("lost", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_of_an_earlier_version_goes_on_where_it_was(
    spark: SparkSession,
    start_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    version: str,
    checkpoint: str,
) -> None:
    with tarfile.open(GOLDEN / version / "group.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    home = tmp_path / "group"
    before = json.loads((GOLDEN / version / "group.json").read_text(encoding="utf-8"))["deliveries"]
    assert deliveries(home) == before

    broker = start_broker("group", arguments=BROKER_ARGUMENTS)
    settings = group_settings(home, broker.endpoint)
    if checkpoint == "lost":
        assert settings.ledger.checkpoints is not None
        shutil.rmtree(settings.ledger.checkpoints)
    give_back_lease(broker.client(), settings.group)
    post(broker.client(), range(FIRST, 2 * FIRST))
    consume(settings, lambda: spark)

    after = deliveries(home)
    assert [row for row in after if row in before] == before
    assert len(after) == 2 * len(before)
    fates = [Counter((row["attempt"], row["verdict"]) for row in rows) for rows in (before, after)]
    assert fates[1] == fates[0] + fates[0], "the second half fares as the first"
    ledger = LedgerReader(str(home / "ledger"))
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "pending_dead_letters"):
        assert ledger.sql(f"SELECT * FROM {view}").num_rows == 0, view
    (counted,) = ledger.sql("SELECT count(*) AS n FROM dead_letters").to_pylist()
    assert counted["n"] == 8
    assert isinstance(settings.ledger, PathLedger)
    for table in WRITTEN:
        found = settings.ledger.open(table)
        assert found.metadata().configuration["lakemq.schema_version"] == ".".join(map(str, table.version))
        described = {field.name: field.metadata.get("comment") for field in found.schema().fields}
        assert described == {column.name: column.comment for column in table.columns}
