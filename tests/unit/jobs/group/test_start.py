"""Where a group goes on: by its ledger, by the broker's offsets, or where its option says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.truncated_ranges import TRUNCATED_RANGES
from jobs.group.start import choose, starting_offsets
from jobs.group.truncated_log import TruncatedLog
from jobs.handler.loader import HandlerTarget
from jobs.runtime.group_brokers import GroupBrokers
from jobs.settings import ConsumeSettings
from lakemq.client.results import QueueBounds
from store_native.errors import InvalidRequest, Unavailable
from tests.support.ledger_rows import append, delivery, path_ledger, report
from tests.unit.jobs.model_cluster import ModelCluster


def test_the_ledger_decides_where_a_group_goes_on() -> None:
    held = QueueBounds(0, 10, 100, 90)
    assert choose(held, 50, 70, "earliest") == 50
    assert choose(held, 3, None, "earliest") == 3, "what expired is for the source to report"
    assert choose(held, None, 70, "earliest") == 70
    assert choose(held, None, 700, "earliest") == 90
    assert (choose(held, None, None, "earliest"), choose(held, None, None, "latest")) == (10, 90)


def test_a_retry_topic_made_again_is_read_from_its_beginning() -> None:
    held = QueueBounds(0, 10, 100, 90)
    assert choose(held, 500, None, "earliest", retry=True) == 10
    assert choose(held, 100, None, "earliest", retry=True) == 100, "all of it was handled"
    assert choose(held, 50, 70, "earliest", retry=True) == 50
    assert choose(held, 500, None, "earliest") == 500, "of any other topic the source reports it"


def test_a_slave_that_is_behind_moves_nobody_back() -> None:
    behind = replace(QueueBounds(0, 10, 100, 90), from_slave=True)
    assert choose(behind, None, 700, "earliest") == 700
    assert choose(behind, 500, None, "earliest", retry=True) == 500


def started(cluster: ModelCluster, ledger: PathLedger) -> dict[str, dict[str, int]]:
    settings = ConsumeSettings("g", ("orders",), HandlerTarget("m:handle"), ledger, start="earliest")
    truncated = TruncatedLog(ledger, "g", cast(Any, None), goes_on=False)
    truncated.begin()
    return starting_offsets(settings, cast(Any, None), GroupBrokers(cluster.client()), truncated)


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    append(made, DELIVERIES, [delivery(offset, broker_name=name) for name in BOTH for offset in range(4)])
    report(made, 0, 6, broker_name="broker-b")
    return made


BOTH = ("broker-a", "broker-b")
RETRIES = "%RETRY%g"


def test_a_broker_that_is_not_there_begins_where_the_ledger_says(ledger: PathLedger) -> None:
    cluster = ModelCluster("broker-a", topics=("orders", RETRIES))
    assert started(cluster, ledger) == {
        "orders": {"broker-a/0": 4, "broker-b/0": 6},
        RETRIES: {"broker-a/0": 0},
    }


def test_a_start_needs_every_broker(ledger: PathLedger) -> None:
    cluster = ModelCluster(*BOTH, topics=("orders", RETRIES))
    cluster.never = ["http://b"]
    with pytest.raises(Unavailable, match="http://b does not answer: where a query without a checkpoint"):
        started(cluster, ledger)
    cluster.never = []
    cluster.away = {"broker-b"}
    with pytest.raises(Unavailable, match="broker-b: no connection: where a query without a checkpoint"):
        started(cluster, ledger)
    cluster.away = set()
    assert started(cluster, ledger)["orders"] == {"broker-a/0": 4, "broker-b/0": 6}


def test_a_topic_that_was_made_again_is_not_taken_for_what_the_ledger_knows(ledger: PathLedger) -> None:
    report(ledger, 6, 7, broker_name="broker-b", topic_id="first", batch_id=1)
    cluster = ModelCluster(*BOTH, topics=("orders", RETRIES))
    for topic_id in ("", "first"):
        cluster.topic_ids = {"orders": topic_id}
        assert started(cluster, ledger)["orders"] == {"broker-a/0": 4, "broker-b/0": 7}
    cluster.topic_ids = {"orders": "second"}
    with pytest.raises(InvalidRequest, match="topic orders of broker broker-b was deleted and created again"):
        started(cluster, ledger)


def test_a_retry_topic_that_was_made_again_begins_at_its_beginning(ledger: PathLedger) -> None:
    report(ledger, 0, 3, topic=RETRIES, topic_id="first", batch_id=1)
    cluster = ModelCluster("broker-a", topics=("orders", RETRIES), several=False)
    assert started(cluster, ledger)[RETRIES] == {"broker-a/0": 3}
    cluster.topic_ids = {RETRIES: "second"}
    assert started(cluster, ledger)[RETRIES] == {"broker-a/0": 0}


def test_a_groups_start_names_its_only_broker_too(ledger: PathLedger) -> None:
    cluster = ModelCluster("broker-a", topics=("orders", RETRIES), several=False)
    assert started(cluster, ledger)["orders"] == {"broker-a/0": 4}


def test_a_position_of_the_ledger_past_the_common_point_is_refused_with_its_range(ledger: PathLedger) -> None:
    cluster = ModelCluster(*BOTH, topics=("orders", RETRIES))
    cluster.epochs = ((1, 0), (65, 5))
    known = {"broker-a/0": 4, "broker-b/0": 6}
    assert started(cluster, ledger)["orders"] == known, "a ledger of an older release does not say the epoch"
    report(ledger, 6, 6, broker_name="broker-b", epoch=1, batch_id=1)
    report(ledger, 0, 7, broker_name="broker-b", epoch=1, batch_id=2)
    said = r"topic orders, broker broker-b, queue 0: truncated log: offsets \[5, 7\).*use another group"
    with pytest.raises(InvalidRequest, match=said):
        started(cluster, ledger)
    cluster.epochs = ((1, 0), (65, 7))
    assert started(cluster, ledger)["orders"]["broker-b/0"] == 7, "the slave lacked nothing that was read"
    report(ledger, 7, 9, broker_name="broker-b", epoch=65, batch_id=3)
    assert started(cluster, ledger)["orders"]["broker-b/0"] == 9
    cluster.epochs = ((1, 0),)
    with pytest.raises(Unavailable, match=r"broker broker-b: .* has a log of epoch 1, not of 65"):
        started(cluster, ledger)


def test_a_position_of_the_ledger_is_refused_where_retention_has_taken_the_common_point(
    ledger: PathLedger,
) -> None:
    cluster = ModelCluster(*BOTH, topics=("orders", RETRIES))
    report(ledger, 0, 5, broker_name="broker-b", epoch=1, batch_id=1)
    cluster.epochs = ((1, 0), (65, 5, True))
    with pytest.raises(InvalidRequest, match=r"broker broker-b, queue 0: truncated log: .* or from before"):
        started(cluster, ledger)
    report(ledger, 6, 7, broker_name="broker-b", epoch=65, batch_id=2)
    assert started(cluster, ledger)["orders"]["broker-b/0"] == 7, "it was noted in the epoch that goes on"


def test_a_retry_topic_whose_offsets_are_given_again_is_read_from_the_common_point(
    ledger: PathLedger,
) -> None:
    report(ledger, 0, 7, topic=RETRIES, epoch=1, batch_id=1)
    cluster = ModelCluster("broker-a", topics=("orders", RETRIES), several=False)
    cluster.epochs = ((1, 0), (65, 5))
    assert started(cluster, ledger)[RETRIES] == {"broker-a/0": 5}


def test_a_batch_behind_a_truncated_log_that_was_not_reported_is_known_to_be_of_the_later_epoch(
    tmp_path: Path,
) -> None:
    """The driver ended between the outcomes and the report, and the checkpoint is lost."""
    ledger = path_ledger(tmp_path)
    report(ledger, 0, 5, epoch=1)
    again = {"consumer_group": "g", "topic": "orders", "broker_name": "broker-a", "queue_id": 0}
    again |= {"from_offset": 2, "to_offset": 4, "epoch_before": 1, "epoch": 65, "named": "broker-a@65"}
    append(ledger, TRUNCATED_RANGES, [again])
    cluster = ModelCluster("broker-a", topics=("orders", RETRIES), several=False)
    cluster.epochs = ((1, 0), (65, 2))
    assert started(cluster, ledger)["orders"] == {"broker-a/0": 2}, "nothing of it was handled"
    renamed: dict[str, Any] = {"broker_name": "broker-a@65", "source_broker_name": "broker-a@65"}
    append(ledger, DELIVERIES, [delivery(offset, **renamed) for offset in (2, 3)])
    assert started(cluster, ledger)["orders"] == {"broker-a/0": 4}
    append(ledger, DELIVERIES, [delivery(4, **renamed), delivery(5), delivery(6)])
    assert started(cluster, ledger)["orders"] == {"broker-a/0": 7}
    assert len(LedgerReader(tmp_path).sql("SELECT * FROM truncated_ranges").to_pylist()) == 1
