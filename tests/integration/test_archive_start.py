"""Where an archive begins: each message has one row, and what it does not go on from says how to go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from delta_tables.messages import MESSAGES
from jobs.archive import ArchiveSettings, Landed, archive
from jobs.archive_start import after_the_last_row
from lakemq.client import Client
from store_native.errors import LakeMQError
from structured_streaming.offsets import Bounds, MessageQueue
from tests.support.broker_process import BrokerProcess
from tests.support.damaged_record import damage
from tests.support.dispatch_barrier import await_dispatch
from tests.support.ledger_rows import append, path_ledger


class Archive:
    """Runs over what is there, of one ledger."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, home: Path) -> None:
        self._spark = spark
        self.ledger = home / "ledger"
        self.checkpoints = self.ledger / "_checkpoints"
        self._settings = ArchiveSettings(
            (), ledger_at(str(self.ledger)), endpoint=broker.endpoint, trigger="availableNow"
        )

    def run(self, *topics: str, checkpoint: Path | None = None) -> dict[str, Landed]:
        """Returns what came."""
        landed: dict[str, Landed] = {}
        chosen = replace(self._settings, topics=topics, checkpoint=checkpoint, on_data_loss="skip")
        archive(chosen, lambda: self._spark, on_end=landed.update)
        return landed

    def offsets(self, topic: str) -> list[int]:
        """Those of its rows, in order."""
        query = f"SELECT queue_offset FROM messages WHERE topic = '{topic}' ORDER BY 1"
        return [row["queue_offset"] for row in LedgerReader(self.ledger).sql(query).to_pylist()]


def send(client: Client, topic: str, bodies: Sequence[str]) -> None:
    if topic not in {config.topic for config in client.topics()}:
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    for body in bodies:
        client.send(topic, body)
    await_dispatch(client)


def test_a_checkpoint_that_does_not_know_of_rows_is_refused_and_without_it_each_message_has_one(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client, archived = shared_broker.client(), Archive(spark, shared_broker, tmp_path)
    send(client, "x", "abc")
    send(client, "y", "abcde")
    assert archived.run("x", "y") == {"x": Landed(3, 0), "y": Landed(5, 0)}
    shutil.rmtree(archived.checkpoints)
    assert archived.run("x") == {"x": Landed(0, 0)}
    send(client, "y", "f")
    unknown = r"has offset 0 of topic y, broker broker-a, queue 0, and the checkpoint .* does not know of it"
    with pytest.raises(LakeMQError, match=unknown):
        archived.run("x", "y")
    shutil.rmtree(archived.checkpoints)
    assert archived.run("x", "y") == {"x": Landed(0, 0), "y": Landed(1, 0)}
    send(client, "x", "d")
    assert archived.run("x", "y", checkpoint=tmp_path / "other") == {"x": Landed(1, 0), "y": Landed(0, 0)}
    with pytest.raises(LakeMQError, match=r"has offset 3 of topic x.*another one was used meanwhile"):
        archived.run("x", "y")
    assert (archived.offsets("x"), archived.offsets("y")) == ([0, 1, 2, 3], [0, 1, 2, 3, 4, 5])

    shutil.rmtree(archived.checkpoints)
    client.delete_topic("x")
    for bodies in ("gh", "ijklm"):  # fewer than landed, and more
        send(client, "x", bodies)
        with pytest.raises(
            LakeMQError, match=r"topic x.*the table has message \S+ at offset 3, where there is"
        ):
            archived.run("x", "y")
    assert archived.offsets("x") == [0, 1, 2, 3]


def test_what_is_passed_over_in_a_queue_that_came_meanwhile_counts_and_a_damaged_record_is_named(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker()
    archived = Archive(spark, broker, tmp_path)
    client = broker.client()
    send(client, "z", ["first" * 20])
    assert archived.run("z") == {"z": Landed(1, 0)}
    send(client, "z", ["second" * 20, "third" * 20])
    send(client, "late", ["one" * 20, "two" * 20])
    broker.stop()
    damage(broker.store_path, "z", 1)
    damage(broker.store_path, "late", 0)
    broker.start()
    fails = ArchiveSettings(
        ("z",), ledger_at(str(archived.ledger)), endpoint=broker.endpoint, trigger="availableNow"
    )
    with pytest.raises(
        LakeMQError, match=r"queue 0: offsets \[1, 2\) are damaged.*archive: --on-data-loss skip"
    ):
        archive(fails, lambda: spark)
    assert archived.run("z", "late") == {"z": Landed(1, 1), "late": Landed(1, 1)}


class KnownBrokers:
    """What is known of a cluster of which a broker is gone from every route; its queue has four messages."""

    several = True

    def all_for_a_start(self) -> dict[str, Any]:
        return {"broker-a": self}

    def queues(self, topic: str) -> dict[MessageQueue, Bounds]:
        return {MessageQueue(topic, "broker-a", queue): Bounds(9, 12) for queue in (0, 1)}

    def key(self, queue: MessageQueue) -> str:
        return f"{queue.broker_name}/{queue.queue_id}"


def test_positions_of_a_broker_that_nobody_knows_of_are_kept_for_when_it_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = path_ledger(tmp_path)
    places = [
        ("x", "broker-a", 0, 5),
        ("x", "broker-b", 0, 2),
        ("x", "broker-b", 0, 3),
        ("y", "broker-b", 0, 7),
    ]
    names = ("topic", "broker_name", "queue_id", "queue_offset")
    append(ledger, MESSAGES, [dict(zip(names, place, strict=True)) for place in places])
    start = after_the_last_row(spark, ledger, ["x"], cast(Any, KnownBrokers()))
    assert start == {"x": {"broker-a/0": 6, "broker-a/1": 9, "broker-b/0": 4}}
