"""What a replay chooses, and under which keys it sends."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.replays import REPLAYS
from jobs.dlq.choice import DeadLetterChoice
from jobs.dlq.replay import ROWS_A_COMMIT, Replay
from jobs.redelivery.original_position import ORIGIN
from lakemq.client import Client
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import append, path_ledger

AT = datetime(2026, 11, 22, tzinfo=UTC)


def letter(offset: int, group: str = "g", **changes: Any) -> dict[str, Any]:
    row = dict.fromkeys(DEAD_LETTERS.column_names) | {
        "consumer_group": group,
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "queue_offset": offset,
        "message_id": f"M{offset}",
        "reason": "it's (really) bad; -- so",
        "attempts": 3,
        "first_attempt_at": AT,
        "last_attempt_at": AT,
        "query_id": "q",
        "batch_id": 7,
        "flag": 0,
        "body": b"x",
    }
    return row | changes


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    append(made, DEAD_LETTERS, [letter(0), letter(1), letter(2, "other")])
    return made


class _Sends(Client):
    """A broker that takes what it is sent, but for some messages."""

    def __init__(self, *refused: str) -> None:
        super().__init__("http://127.0.0.1:1")
        self.refused = refused
        self.keys: list[str] = []
        self.origins: list[str] = []

    def is_cluster(self) -> bool:
        return False

    def cluster(self) -> dict[str, Any]:
        return {"broker_name": "broker-a"}

    def group(self, group: str) -> Any:
        return group

    def send_arrow(self, topic: str, data: Any, **given: Any) -> Any:
        if data.column("message_id")[0].as_py() in self.refused:
            raise InvalidRequest("PROPERTIES_TOO_LARGE", "no")
        self.keys.append(given["idempotency_key"])
        self.origins.append(dict(data.column("properties")[0].as_py())[ORIGIN])


def test_a_dead_letter_of_offsets_that_were_given_again_goes_to_its_broker(ledger: PathLedger) -> None:
    """Its broker has another name in the ledger; the retry carries that one, which is its key's."""
    append(ledger, DEAD_LETTERS, [letter(1, broker_name="broker-a@65")])
    replay = Replay(DeadLetterChoice(str(ledger), "g", "broker_name = 'broker-a@65'"))
    client = _Sends()
    assert replay.send(client).sent == 1
    assert client.origins == ["broker-a@65/0/1"]


@pytest.mark.parametrize(
    ("predicate", "chosen"),
    [
        ("true", 2),
        ("queue_offset = 1", 1),
        ("reason = 'it''s (really) bad; -- so'", 2),
        ("reason LIKE '%)%' -- a comment )\n AND true", 2),
        ("/* ) */ queue_offset IN (SELECT max(queue_offset) FROM dead_letters)", 1),
        ("dead_letters.queue_offset = 1", 1),
        ("reason <> 'random()' -- no random()\n AND /* uuid() */ true", 2),
        ("consumer_group = 'other'", 0),
        ("4 / 2 - 1 = 1", 2),
    ],
)
def test_a_condition_chooses_among_the_groups_own(ledger: PathLedger, predicate: str, chosen: int) -> None:
    assert Replay(DeadLetterChoice(str(ledger), "g", predicate)).letters.num_rows == chosen


@pytest.mark.parametrize(
    "predicate",
    [
        "true) OR (true",
        "true) UNION ALL SELECT * FROM dead_letters WHERE (consumer_group = 'other'",
        "true) UNION ALL SELECT * FROM mine WHERE (true",
        "true); DROP TABLE x; SELECT (1",
        "true -- (\n)",
        "reason = 'unended",
        "/* unended",
        "",
        "  ",
        "(true",
    ],
)
def test_what_is_no_condition_is_refused(ledger: PathLedger, predicate: str) -> None:
    with pytest.raises(InvalidRequest, match="--where is one condition"):
        Replay(DeadLetterChoice(str(ledger), "g", predicate))


@pytest.mark.parametrize(
    "predicate", ["random() < 0.1", "RAND ( ) < 0.1", '"random"() < 0.1', "uuid/* so */() < '8'"]
)
def test_what_comes_out_another_way_each_time_is_refused(ledger: PathLedger, predicate: str) -> None:
    with pytest.raises(InvalidRequest, match="--where has another result each time"):
        DeadLetterChoice(str(ledger), "g", predicate)


class _FailsAtOnce(_Sends):
    """A broker whose group gives up again what it gets, while the replay goes on."""

    def __init__(self, ledger: PathLedger) -> None:
        super().__init__()
        self.ledger = ledger

    def send_arrow(self, topic: str, data: Any, **given: Any) -> Any:
        super().send_arrow(topic, data, **given)
        assert len(self.keys) < 10, "a run that goes on without end"
        attempts = data.column("reconsume_times")[0].as_py() + 1
        message_id = data.column("message_id")[0].as_py()
        append(self.ledger, DEAD_LETTERS, [letter(int(message_id[1:]), attempts=attempts)])


def test_what_is_given_up_anew_while_a_replay_goes_on_is_left_to_the_next(ledger: PathLedger) -> None:
    broker = _FailsAtOnce(ledger)
    assert Replay(DeadLetterChoice(str(ledger), "g", "true")).send(broker).sent == 2
    left = Replay(DeadLetterChoice(str(ledger), "g", "true"))
    assert left.letters.column("attempts").to_pylist() == [4, 4]
    assert left.send(broker).sent == 2
    rows = pa.table(ledger.open(REPLAYS).to_pyarrow_table()).to_pylist()
    assert sorted((row["queue_offset"], row["attempts"]) for row in rows) == [(0, 3), (0, 4), (1, 3), (1, 4)]


def test_each_is_sent_once_and_what_is_refused_is_said(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    count = 2 * ROWS_A_COMMIT + 3
    append(ledger, DEAD_LETTERS, [letter(offset) for offset in range(count)])
    broker = _Sends("M5", f"M{count - 1}")
    chosen_before = Replay(DeadLetterChoice(str(ledger), "g", "true"))
    replayed = Replay(DeadLetterChoice(str(ledger), "g", "true")).send(broker)
    assert replayed.sent == count - 2 == len(set(broker.keys))
    assert [at for at, _ in replayed.refused] == ["M5", f"M{count - 1}"]
    again = chosen_before.send(broker)
    assert (again.sent, len(again.refused)) == (0, 2), "another replay has sent them since they were chosen"


def test_a_key_fits_whatever_the_names_are_and_is_of_one_death(tmp_path: Path) -> None:
    group, topic = "g" * 120, "t" * 127
    keys = []
    deaths: list[dict[str, Any]] = [{}, {"attempts": 4}, {"batch_id": 8}, {"query_id": "rebuilt"}]
    for number, changes in enumerate(deaths):
        ledger = path_ledger(tmp_path / str(number))
        append(ledger, DEAD_LETTERS, [letter(0, group, topic=topic, **changes)])
        broker = _Sends()
        Replay(DeadLetterChoice(str(ledger), group, "true")).send(broker)
        keys += broker.keys
    assert len(set(keys)) == 4
    assert all(len(key) <= 255 and key.isascii() for key in keys)


def test_an_operator_without_a_name_is_a_number(ledger: PathLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", nobody)
    Replay(DeadLetterChoice(str(ledger), "g", "true")).send(_Sends())
    table = pa.table(ledger.open(REPLAYS).to_pyarrow_table())
    assert all(name.startswith("uid ") for name in table.column("operator").to_pylist())


def test_dead_letters_of_another_broker_are_not_sent_to_this_one(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DEAD_LETTERS, [letter(0), letter(1, broker_name="broker-b")])
    broker = _Sends()
    with pytest.raises(InvalidRequest, match="is broker broker-a; there are dead letters of broker-b"):
        Replay(DeadLetterChoice(str(ledger), "g", "true")).send(broker)
    assert broker.keys == []
