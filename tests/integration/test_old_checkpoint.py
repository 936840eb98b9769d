"""A checkpoint that is put back from a backup is older than the ledger: the group does not begin with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.consume import consume
from store_native.errors import LakeMQError
from tests.integration.test_handler_host import post, rows
from tests.support.available_runs import available_now
from tests.support.broker_process import BrokerProcess

HANDLER = """
import pathlib

def handle(message):
    with (pathlib.Path(__file__).parent / "calls").open("a") as calls:
        calls.write(message.text + "\\n")
"""


def test_a_checkpoint_put_back_from_a_backup_is_refused_before_a_call(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "restored.py").write_text(HANDLER)
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    more = {"checkpoint": checkpoint, "endpoint": shared_broker.endpoint, "max_messages_per_batch": 2}
    settings = available_now("restored", "restored:handle", tmp_path, **more)
    post(shared_broker, "restored", ["a", "b"])
    consume(settings, lambda: spark)
    shutil.copytree(checkpoint, backup)
    post(shared_broker, "restored", ["c", "d", "e", "f"])
    consume(settings, lambda: spark)
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    post(shared_broker, "restored", ["g"])
    with pytest.raises(LakeMQError, match="is older than the ledger"):
        consume(settings, lambda: spark)
    assert sorted((tmp_path / "calls").read_text().split()) == ["a", "b", "c", "d", "e", "f"]
    assert len(rows(tmp_path / "ledger", "SELECT queue_offset FROM deliveries")) == 6
