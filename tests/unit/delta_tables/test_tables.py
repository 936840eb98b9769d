"""Schemas, places and locks of the ledger's tables, and appends that happen once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from delta_tables.catalog_ledger import CatalogLedger
from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY
from delta_tables.idempotent import append_arrow_once
from delta_tables.ledger import ledger_at
from delta_tables.path_ledger import PathLedger
from delta_tables.table import Table
from delta_tables.views import TABLES
from delta_tables.writer_lock import WriterLock
from store_native.errors import InvalidRequest, Unavailable
from tests.support.ledger_rows import START, path_ledger


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_is_created_with_its_columns_and_has_its_key_among_them(table: Table, tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(table)
    ledger.create(table)
    stored = DeltaTable(str(ledger.path(table)))
    assert [field.name for field in stored.schema().fields] == table.column_names
    assert set(table.key) <= set(table.column_names)
    assert table.ddl.count(",") >= len(table.columns) - 1


def test_a_delivery_is_keyed_by_group_original_position_and_attempt() -> None:
    assert DELIVERY_KEY == ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")
    assert DELIVERIES.column_names[:6] == list(DELIVERY_KEY)


@pytest.mark.parametrize(
    ("text", "schema"), [("main.lmq", "main.lmq"), ("./main.lmq", None), ("ledger", None), ("/a/b.c", None)]
)
def test_two_plain_names_with_a_dot_are_a_catalogs_schema(text: str, schema: str | None) -> None:
    location = ledger_at(text)
    assert location == (PathLedger(Path(text).absolute()) if schema is None else CatalogLedger(schema))
    assert (location.checkpoints is None) == (schema is not None)
    assert location.qualified(DELIVERIES).startswith("main.lmq." if schema else "delta.`/")


def test_an_empty_name_is_no_ledger() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        ledger_at(" ")


def test_an_arrow_append_of_a_known_version_adds_nothing(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    ledger.create(CONSUMER_OFFSETS)
    progress = [QueueProgress("t", "b", 0, 0, 5, None), QueueProgress("t", "b", 1, 5, 5, 9)]
    table = rows(progress, consumer_group="g", subscription="*", query_id="q", batch_id=1, recorded_at=START)
    assert table.num_rows == 1, "a queue that did not move has no row"
    done = [
        append_arrow_once(table, ledger, CONSUMER_OFFSETS, app_id=app, version=version)
        for app, version in [("a", 1), ("a", 1), ("a", 0), ("b", 1), ("a", 2)]
    ]
    assert done == [True, False, False, True, True]
    assert DeltaTable(str(ledger.path(CONSUMER_OFFSETS))).to_pyarrow_table().num_rows == 3


def test_a_second_writer_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path, "deliveries")
    lock.acquire()
    code = (
        "import sys; from pathlib import Path; from delta_tables.writer_lock import WriterLock\n"
        "WriterLock(Path(sys.argv[1]), 'deliveries').acquire()"
    )
    refused = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "STORE_LOCKED" in refused.stderr
    with pytest.raises(Unavailable, match="another process writes deliveries"):
        WriterLock(tmp_path, "deliveries").acquire()
    lock.release()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


def test_a_jvm_that_lives_on_after_a_clean_end_is_not_waited_for(tmp_path: Path) -> None:
    first = WriterLock(tmp_path, "deliveries")
    first.acquire()
    first.name_jvm(os.getpid())
    first.release()
    second = WriterLock(tmp_path, "deliveries", clock=lambda: 0.0)
    second.acquire()
    second.release()


def test_the_lock_waits_for_a_jvm_that_outlives_its_killed_holder(tmp_path: Path) -> None:
    jvm = subprocess.Popen(["sleep", "600"])
    code = (
        "import os, sys; from pathlib import Path; from delta_tables.writer_lock import WriterLock\n"
        "lock = WriterLock(Path(sys.argv[1]), 'deliveries'); lock.acquire()\n"
        "lock.name_jvm(int(sys.argv[2]))\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(jvm.pid)], check=False)
    assert killed.returncode == -signal.SIGKILL
    clock = iter([0.0, 31.0, 62.0])
    with pytest.raises(Unavailable, match=f"JVM {jvm.pid}"):
        WriterLock(tmp_path, "deliveries", clock=lambda: next(clock)).acquire()
    jvm.kill()
    after = WriterLock(tmp_path, "deliveries")
    after.acquire()
    after.release()
    jvm.wait()
