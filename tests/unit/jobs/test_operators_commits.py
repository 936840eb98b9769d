"""The commit of an operator's command fails, before it or after it with the answer lost; it is run again.

Contract: no row is there twice and none is missing when the repeat is through; before the commit nothing is
recorded, after it the repeat knows the rows and does not do the work again. A replay that sent writes its
rows a second time, as the same commit. Retention deletes nothing before its marks are in.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, RETENTION
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.discarded_sends import DISCARDED_SENDS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.maintenance import maintain
from delta_tables.replays import REPLAYS
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.table import Table
from delta_tables.views import TABLES
from jobs.dlq.choice import DeadLetterChoice
from jobs.dlq.discard import discard as discard_dead_letters
from jobs.dlq.replay import Replay
from jobs.group.fence import application
from jobs.outbox.discard import discard as discard_sends
from jobs.outbox.pending import PendingSends
from jobs.skip.message_state import GroupLedger, Place
from jobs.skip.skip import skip
from lakemq.client import Client
from store_native.errors import InvalidRequest
from tests.support.faulty_ledger import CommitFaults, FaultyPathLedger, InjectedError, When
from tests.support.ledger_rows import START, append, delivery, report
from tests.unit.jobs.dlq.test_replay import _Sends, letter

BEFORE_AND_AFTER = pytest.mark.parametrize("when", ["before", "after"])
NOBODY = Client("http://127.0.0.1:9", retries=0)


@pytest.fixture
def ledger(tmp_path: Path) -> FaultyPathLedger:
    return FaultyPathLedger(tmp_path.absolute(), CommitFaults())


def fails(ledger: FaultyPathLedger, table: Table, when: When) -> Any:
    """Arms the next commit, which is awaited to fail."""
    ledger.faults.arm(table, 1, when)
    return pytest.raises(InjectedError, match=f"{when} the commit to {table.name}")


def offsets(ledger: PathLedger, table: Table) -> list[int]:
    found = LedgerReader(ledger.directory).sql(f"SELECT queue_offset FROM {table.name} ORDER BY 1")
    return [int(offset) for offset in found.column("queue_offset").to_pylist()]


def choice(ledger: FaultyPathLedger) -> DeadLetterChoice:
    made = DeadLetterChoice(str(ledger), "g", "true")
    made.ledger.location = ledger
    return made


@BEFORE_AND_AFTER
def test_a_replay_whose_commit_fails_has_a_row_for_each_that_it_sent(
    ledger: FaultyPathLedger, when: When
) -> None:
    append(ledger, DEAD_LETTERS, [letter(offset) for offset in range(3)])
    broker = _Sends()
    with fails(ledger, REPLAYS, when):
        Replay(choice(ledger)).send(broker)
    assert len(set(broker.keys)) == 3
    assert offsets(ledger, REPLAYS) == [0, 1, 2]
    assert Replay(choice(ledger)).send(broker).sent == 0
    assert len(broker.keys) == 3


@BEFORE_AND_AFTER
def test_dead_letters_are_discarded_once(ledger: FaultyPathLedger, when: When) -> None:
    append(ledger, DEAD_LETTERS, [letter(offset) for offset in range(3)])
    with fails(ledger, REPLAYS, when):
        discard_dead_letters(choice(ledger), "no use")
    assert offsets(ledger, REPLAYS) == ([] if when == "before" else [0, 1, 2])
    assert discard_dead_letters(choice(ledger), "no use")[1] == (3 if when == "before" else 0)
    assert offsets(ledger, REPLAYS) == [0, 1, 2]
    assert Replay(choice(ledger)).send(_Sends()).sent == 0


@BEFORE_AND_AFTER
def test_a_message_is_skipped_once(ledger: FaultyPathLedger, when: When) -> None:
    append(ledger, DELIVERIES, [delivery(0), delivery(1, verdict="RETRY")])
    nothing = pa.Table.from_pylist([], schema=DELIVERIES.arrow_schema)
    ledger.append_arrow(nothing, DELIVERIES, app_id=application("g"), version=1)
    of_group = GroupLedger(str(ledger), "g")
    of_group.opened.location = ledger
    at = Place("orders", "broker-a", 0, 1)
    with fails(ledger, SKIPPED_MESSAGES, when):
        skip(of_group, NOBODY, at, "no use")
    if when == "after":
        with pytest.raises(InvalidRequest, match="is given up already, since"):
            skip(of_group, NOBODY, at, "no use")
    else:
        assert offsets(ledger, SKIPPED_MESSAGES) == []
        assert skip(of_group, NOBODY, at, "no use")[1].attempts == 1
    assert offsets(ledger, SKIPPED_MESSAGES) == [1]


@BEFORE_AND_AFTER
def test_sends_are_discarded_once(ledger: FaultyPathLedger, when: When) -> None:
    ledger.create(*TABLES)
    sent = {"topic": "invoices", "message_id": "S", "keys": None, "tags": None, "body": b"x"}
    append(ledger, DELIVERIES, [delivery(offset, sends=1, outbox=[sent]) for offset in range(3)])

    def pending() -> PendingSends:
        made = PendingSends(str(ledger), "g", "queue_offset > 0")  # an older one waits
        made.ledger.location = ledger
        return made

    with fails(ledger, DISCARDED_SENDS, when):
        discard_sends(pending(), "no use")
    assert offsets(ledger, DISCARDED_SENDS) == ([] if when == "before" else [1, 2])
    assert discard_sends(pending(), "no use")[1] == (2 if when == "before" else 0)
    assert offsets(ledger, DISCARDED_SENDS) == [1, 2]


@BEFORE_AND_AFTER
def test_retention_deletes_nothing_before_its_marks_are_in_and_marks_once(
    ledger: FaultyPathLedger, when: When
) -> None:
    ledger.create(*TABLES)
    append(ledger, DELIVERIES, [delivery(0), delivery(1)])
    append(ledger, DELIVERIES, [delivery(2, batch_id=1, finished_at=START + timedelta(days=20))])
    report(ledger, 0, 2)
    report(ledger, 2, 3, batch_id=1)
    reader = LedgerReader(ledger.directory)
    marks = f"SELECT next_offset AS n FROM consumer_offsets WHERE query_id = '{RETENTION}'"
    now = START + timedelta(days=25)
    with fails(ledger, CONSUMER_OFFSETS, when):
        maintain(ledger, keep_days=10, now=now)
    assert offsets(ledger, DELIVERIES) == [0, 1, 2]
    assert reader.sql(marks).to_pylist() == ([] if when == "before" else [{"n": 2}])
    for _ in range(2):
        maintain(ledger, keep_days=10, now=now)
        assert offsets(ledger, DELIVERIES) == [2]
        assert reader.sql(marks).to_pylist() == [{"n": 2}]
        assert reader.sql("SELECT * FROM delivery_gaps").num_rows == 0
