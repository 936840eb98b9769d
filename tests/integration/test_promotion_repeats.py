"""A group's batch that was open when its broker's slave was promoted by force, or that fails behind that.

Contract: what was handled before the promotion is reported as the messages that they were, though their
offsets have others now; each of those is handled once, by a name of its own, whichever commit failed and
whether or not the checkpoint is lost; the broker is not told more than its queue has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import LakeMQError
from tests.support.broker_process import BrokerProcess
from tests.support.faulty_ledger import CommitFaults, InjectedError, with_faults
from tests.support.forced_promotion import TOPIC, ForcedPromotion, send
from tests.support.spark_streams import TRIGGER

HANDLER = """
def handle(message):
    pass
"""


class Group:
    """A group and its ledger, whose commits of `consumer_offsets` fail when asked.

    Args:
        spark: The session.
        directory: Of its ledger, handler and checkpoints.
        mode: Of the group.
    """

    def __init__(self, spark: SparkSession, directory: Path, mode: str) -> None:
        self._spark = spark
        self._directory = directory
        self._mode = mode
        self._faults = CommitFaults()
        (directory / f"handlers_{directory.name}.py").write_text(HANDLER)

    def run(self, broker: BrokerProcess, checkpoint: str = "checkpoint", **changes: Any) -> None:
        """Runs the group until it is idle."""
        values: dict[str, Any] = {
            "group": "g",
            "topics": (TOPIC,),
            "handler": HandlerTarget(
                f"handlers_{self._directory.name}:handle", "auto", (str(self._directory),)
            ),
            "ledger": with_faults(ledger_at(str(self._directory / "ledger")), self._faults),
            "checkpoint": self._directory / checkpoint,
            "endpoint": broker.endpoint,
            "start": "earliest",
            "trigger": TRIGGER,
            "mode": self._mode,
            "until_idle_s": 0.2,
        }
        consume(ConsumeSettings(**(values | changes)), lambda: self._spark)

    def die_before_the_report(self, broker: BrokerProcess, of_batch: int = 1, **changes: Any) -> None:
        """Runs the group until a batch is in the ledger; it is not reported."""
        self._faults.arm(CONSUMER_OFFSETS, of_batch, "before")
        with pytest.raises((LakeMQError, InjectedError, StreamingQueryException), match="consumer_offsets"):
            self.run(broker, **changes)

    def handled(self) -> list[tuple[str, int, str]]:
        """Broker, offset and key of each row, by offset."""
        return self.rows("SELECT broker_name, queue_offset, keys[1] FROM deliveries ORDER BY 2, 1")

    def reported(self) -> list[tuple[str, int, int]]:
        """Broker and range of each report, by its offset."""
        return self.rows(
            "SELECT broker_name, begin_offset, next_offset FROM consumer_offsets ORDER BY 2, 1, 3"
        )

    def rows(self, text: str) -> list[Any]:
        """What a question to the ledger gives."""
        return [tuple(row.values()) for row in LedgerReader(self._directory / "ledger").sql(text).to_pylist()]


RECORD: dict[str, Any] = {"on_data_loss": "record"}
BEFORE = [
    ("broker-a", 0, "both-0"),
    ("broker-a", 1, "both-1"),
    ("broker-a", 2, "lost-0"),
    ("broker-a", 3, "lost-1"),
    ("broker-a", 4, "lost-2"),
]
AGAIN = [("broker-a@65", 2, "new-0"), ("broker-a@65", 3, "new-1")]


@pytest.mark.parametrize("mode", ["concurrent", "broadcast"])
def test_a_batch_that_was_open_at_the_promotion_is_reported_as_what_it_was(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    group = Group(spark, tmp_path, mode)
    with ForcedPromotion(tmp_path / "brokers") as brokers:
        brokers.lose(3)
        group.die_before_the_report(brokers.master)
        assert (group.handled(), group.reported()) == (BEFORE, [])
        brokers.promote()
        send(brokers.slave, ["new 0", "new 1"])  # the log is shorter than the open batch
        group.die_before_the_report(brokers.slave, of_batch=2, **RECORD)
        assert group.reported() == [("broker-a", 0, 5)]
        assert group.handled() == sorted(BEFORE + AGAIN, key=lambda row: (row[1], row[0]))
        with brokers.slave.client() as client:
            told = client.group_offsets("g") if mode == "concurrent" else {}
        assert all(at <= 4 for at in told.values()), "the queue ends at 4"
        group.run(brokers.slave, checkpoint="lost", **RECORD)
        send(brokers.slave, ["new 2", "new 3"])
        group.run(brokers.slave, checkpoint="lost, too", **RECORD)
        after = [("broker-a@65", 4, "new-2"), ("broker-a", 5, "new-3")]
        assert group.handled() == sorted(BEFORE + AGAIN + after, key=lambda row: (row[1], row[0]))
        if mode == "concurrent":
            with brokers.slave.client() as client:
                assert client.group_offsets("g")[TOPIC, 0] == 6
    assert group.rows("SELECT * FROM duplicate_deliveries") == group.rows("SELECT * FROM delivery_gaps") == []
