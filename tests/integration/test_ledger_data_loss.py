"""A group behind a retention that was faster: it ends and says so, or goes on and the ledger says so."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.data_losses import DATA_LOSSES
from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.archive import ArchiveSettings, Landed, archive
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.damaged_record import FILE_BYTES, damage
from tests.support.faulty_ledger import CommitFaults, with_faults
from tests.support.spark_streams import TRIGGER
from tests.support.stores import open_store

HOUR_MS = 3_600_000
ROWS = 1_300
LINE = json.dumps({"body": "x" * 60_000}).encode()


def expire_first_file(store_path: Path, topic: str) -> int:
    """Runs retention as in a hundred hours; returns the topic's new minimum."""
    with contextlib.closing(opened(store_path)) as store:
        last = json.loads(store.read_json(topic, 0, ROWS - 1, max_messages=1).messages)[0]
        assert store.expire(last["store_timestamp"] + 100 * HOUR_MS) > 0
        return int(store.queue_bounds(topic, 0)[0])


def opened(store_path: Path) -> Any:
    return open_store(store_path, commitlog_file_size=FILE_BYTES, consumequeue_file_entries=30_000)


def test_what_expired_or_is_damaged_is_recorded_and_shown_as_such(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(flush="async")
    client = broker.client()
    for topic in ("slow", "late"):
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
        client.send_ndjson(topic, b'{"body":"1"}\n{"body":"2"}\n{"body":"3"}')
    (tmp_path / "loss_handlers.py").write_text("def handle(message):\n    pass\n")

    def settings(**changes: Any) -> ConsumeSettings:
        values: dict[str, Any] = {
            "group": "slow-group",
            "topics": ("slow",),
            "handler": HandlerTarget("loss_handlers:handle", "auto", (str(tmp_path),)),
            "ledger": ledger_at(str(tmp_path / "ledger")),
            "endpoint": broker.endpoint,
            "start": "earliest",
            "trigger": TRIGGER,
            "until_idle_s": 0.5,
        }
        return ConsumeSettings(**(values | changes))

    consume(settings(), lambda: spark)
    kept = ArchiveSettings(
        ("slow", "late"), settings().ledger, endpoint=broker.endpoint, trigger="availableNow"
    )
    archive(kept, lambda: spark)
    for _ in range(0, ROWS, 260):
        client.send_ndjson("slow", b"\n".join([LINE] * 260))
    broker.stop()
    low = expire_first_file(broker.store_path, "slow")
    damage(broker.store_path, "slow", ROWS - 10)
    broker.start()
    client.send_ndjson("late", b'{"body":"4"}')

    with pytest.raises(LakeMQError, match=rf"queue 0: offsets \[3, {low}\) expired.*--on-data-loss record"):
        consume(settings(), lambda: spark)
    with pytest.raises(
        LakeMQError, match=rf"queue 0: offsets \[3, {low}\) expired.*archive: --on-data-loss skip"
    ):
        archive(kept, lambda: spark)
    landed: list[Mapping[str, Landed]] = []
    archive(replace(kept, on_data_loss="skip"), lambda: spark, on_end=landed.append)
    assert landed == [{"slow": Landed(ROWS + 3 - low - 1, missing=low - 3 + 1), "late": Landed(1, missing=0)}]
    recording = settings(topics=("slow", "late"), on_data_loss="record")

    faults = CommitFaults()
    failing = replace(recording, ledger=with_faults(recording.ledger, faults))

    faults.arm(DATA_LOSSES, 1, "before")  # the batch's outcomes are in
    with pytest.raises(LakeMQError, match="before the commit to data_losses"):
        consume(failing, lambda: spark)
    ledger = LedgerReader(tmp_path / "ledger")
    assert ledger.sql("SELECT * FROM data_losses").num_rows == 0
    broker.stop()
    damage(broker.store_path, "slow", ROWS - 5)  # it has its delivery
    broker.start()
    faults.arm(DATA_LOSSES, 1, "after")
    with pytest.raises(LakeMQError, match="after the commit to data_losses"):
        consume(failing, lambda: spark)
    assert ledger.sql("SELECT * FROM consumer_offsets WHERE next_offset > 3").num_rows == 0
    consume(recording, lambda: spark)

    gaps = ledger.sql(
        "SELECT topic, from_offset, to_offset, missing, recorded, reason FROM delivery_gaps ORDER BY 1, 2"
    )
    expired, damaged = "expired before they were read", "damaged in the store"
    assert [tuple(row.values()) for row in gaps.to_pylist()] == [
        ("late", 0, 2, 3, 3, expired),
        ("slow", 3, low - 1, low - 3, low - 3, expired),
        ("slow", ROWS - 10, ROWS - 10, 1, 1, damaged),
    ]
    lost = ledger.sql("SELECT topic, from_offset, to_offset FROM data_losses ORDER BY 1, 2")
    assert [tuple(row.values()) for row in lost.to_pylist()] == [
        ("late", 0, 2),
        ("slow", 3, low - 1),
        ("slow", ROWS - 10, ROWS - 10),
    ]
    assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0
    (counted,) = ledger.sql("SELECT count(*) AS n FROM deliveries WHERE topic = 'slow'").to_pylist()
    assert counted["n"] == 3 + (ROWS + 3 - low) - 1

    with broker.client() as again:
        again.delete_topic("late")
        again.put_topic("late", read_queue_nums=1, write_queue_nums=1)
        again.send("late", "of another topic")
    with pytest.raises(LakeMQError, match=r"topic late was deleted and created again.*as other messages'"):
        archive(replace(kept, on_data_loss="skip"), lambda: spark)
    (counted,) = ledger.sql("SELECT count(*) AS n FROM messages WHERE topic = 'late'").to_pylist()
    assert counted["n"] == 4
