"""Dead letters put aside: which are then left, and what is written down."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.replays import REPLAYS
from jobs.dlq.choice import DeadLetterChoice, State
from jobs.dlq.discard import discard
from jobs.dlq.replay import Replay
from store_native.errors import InvalidRequest, Unavailable
from tests.support.ledger_rows import append, path_ledger
from tests.unit.jobs.dlq.test_replay import AT, _Sends, letter


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    append(made, DEAD_LETTERS, [letter(0), letter(1), letter(2), letter(2, "other")])
    return made


def offsets(ledger: PathLedger, state: State = "open", where: str = "true") -> list[int]:
    found = DeadLetterChoice(str(ledger), "g", where, state).summaries()
    return [int(offset) for offset in found.column("queue_offset").to_pylist()]


def test_what_is_discarded_is_not_chosen_unless_it_is_asked_for(ledger: PathLedger) -> None:
    discard_id, count = discard(DeadLetterChoice(str(ledger), "g", "queue_offset < 2"), "known since May")
    assert count == 2
    assert (offsets(ledger), offsets(ledger, "discarded"), offsets(ledger, "any")) == ([2], [0, 1], [0, 1, 2])
    rows = pa.table(ledger.open(REPLAYS).to_pyarrow_table()).to_pylist()
    assert {(row["replay_id"], row["action"], row["reason"], row["predicate"]) for row in rows} == {
        (discard_id, "DISCARD", "known since May", "queue_offset < 2")
    }
    assert discard(DeadLetterChoice(str(ledger), "g", "true"), "again")[1] == 1, "each once"


def test_a_replay_passes_over_what_is_discarded_and_takes_it_when_told(ledger: PathLedger) -> None:
    discard(DeadLetterChoice(str(ledger), "g", "queue_offset = 0"), "no use")
    broker = _Sends()
    assert Replay(DeadLetterChoice(str(ledger), "g", "true")).send(broker).sent == 2
    taken_up = DeadLetterChoice(str(ledger), "g", "true", "discarded")
    assert Replay(taken_up).send(broker).sent == 1
    assert Replay(taken_up).send(broker).sent == 0
    assert (offsets(ledger), offsets(ledger, "discarded"), offsets(ledger, "any")) == ([], [], [0, 1, 2])


def test_a_reason_is_needed(ledger: PathLedger) -> None:
    with pytest.raises(InvalidRequest, match="--reason"):
        discard(DeadLetterChoice(str(ledger), "g", "true"), " ")
    assert offsets(ledger) == [0, 1, 2]


def test_beside_another_writer_nothing_is_discarded(ledger: PathLedger) -> None:
    other = WriterLock(ledger.directory, REPLAYS.name)
    other.acquire()
    with pytest.raises(Unavailable, match="STORE_LOCKED"):
        discard(DeadLetterChoice(str(ledger), "g", "true"), "no use")
    other.release()
    assert offsets(ledger) == [0, 1, 2]


def test_a_table_of_an_older_release_gets_its_columns_and_its_rows_stay_replays(ledger: PathLedger) -> None:
    older = pa.schema(
        [field for field in REPLAYS.arrow_schema if field.name not in REPLAYS.column_names[-4:]]
    )
    at = {**letter(0), "replay_id": "r", "predicate": "true", "operator": "me@here", "replayed_at": AT}
    row = {name: at[name] for name in older.names}
    DeltaTable.create(str(ledger.path(REPLAYS)), schema=older)
    ledger.append_arrow(pa.Table.from_pylist([row], schema=older), REPLAYS, app_id="older", version=1)
    assert offsets(ledger) == [1, 2]
    assert discard(DeadLetterChoice(str(ledger), "g", "true"), "no use")[1] == 2
    assert (offsets(ledger), offsets(ledger, "discarded")) == ([], [1, 2])
