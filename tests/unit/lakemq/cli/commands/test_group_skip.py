"""What `lakemq group skip` says of a message that the ledger knows, and what it refuses, without a broker."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from delta_tables import retained_from
from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.ledger_reader import LedgerReader
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.truncated_ranges import TRUNCATED_RANGES
from jobs.group.fence import application
from jobs.skip.message_state import GroupLedger, Place, Reached
from jobs.skip.skip import look
from lakemq.cli.app import main
from lakemq.cli.group_skip import skip
from lakemq.client import Client
from lakemq.terminal.failure import WrongUsage
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import START, append, delivery, path_ledger, report, skipped

NOBODY = "http://127.0.0.1:9"
KEY = [("LMQ_SHARDING_KEY", "o'neill")]
DUE = START + timedelta(hours=2)


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    """Offset 0 is done, 1 waits for attempt 3, 2 and 4 are parked behind it, 3 and 9 on another lane."""
    made = path_ledger(tmp_path)
    made.create(DELIVERIES)
    nothing = pa.Table.from_pylist([], schema=DELIVERIES.arrow_schema)
    made.append_arrow(nothing, DELIVERIES, app_id=application("g"), version=1)
    failed: dict[str, Any] = {"verdict": "RETRY", "properties": KEY}
    parked: dict[str, Any] = {"verdict": "PARKED", "started_at": None}
    rows = [
        delivery(0, reason="thanks"),
        delivery(1, **failed),
        delivery(1, 2, error_text="no such customer", next_attempt_at=DUE, **failed),
        *(delivery(offset, properties=KEY, **parked) for offset in (2, 4)),
        delivery(3, **parked),
        delivery(5, verdict="DEAD", reason="negative amount"),
        delivery(6, verdict="DROPPED"),
        delivery(8, verdict="RETRY", consumer_group="other"),
        delivery(9, verdict="DEAD"),
        delivery(9, 2, **parked),
    ]
    append(made, DELIVERIES, rows)
    report(made, 0, 10, subscription="A")
    return made


def command(ledger: PathLedger, offset: int, *more: str, group: str = "g") -> list[str]:
    where = ["--topic", "orders", "--queue", "0", "--offset", str(offset), "--broker", "broker-a"]
    given = ["--endpoint", NOBODY, "--ledger", str(ledger), "--reason", "no use"]
    return ["group", "skip", group, *where, *given, *more]


def rows(ledger: PathLedger) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = LedgerReader(str(ledger)).sql("SELECT * FROM skipped_messages").to_pylist()
    return found


def test_without_execute_it_says_how_far_the_group_is_and_writes_nothing(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(ledger, 1)) == 0
    said = capsys.readouterr().out
    fields = dict(line.split("  ", 1) for line in said.splitlines() if "  " in line)
    assert {name.strip(): value.strip() for name, value in fields.items()} == {
        "group": "g",
        "topic": "orders",
        "broker name": "broker-a",
        "queue id": "0",
        "queue offset": "1",
        "state": "waits for its next attempt",
        "attempts": "2",
        "message id": "ID1",
        "last error": "ValueError: no such customer",
        "due at": "2026-11-21 10:00:00.000Z",
        "parked behind": "2",
    }
    assert said.splitlines()[-1] == (
        "preview: group g would give it up when attempt 3 comes, due at 2026-11-21 10:00:00.000Z, not "
        "before: no call of the handler, and a dead letter; --execute does it"
    )
    assert rows(ledger) == []
    assert main(command(ledger, 1, "--format", "json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["executed"], answer["skip_id"], answer["state"]) == (False, None, "RETRY")
    assert (answer["due_at"], answer["parked_behind"]) == (DUE.isoformat(), 2)
    assert rows(ledger) == []


def test_what_is_done_is_a_row_with_who_and_why_and_is_done_once(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(ledger, 1, "--execute")) == 0
    said = capsys.readouterr().out
    (row,) = rows(ledger)
    assert "done: group g gives it up when attempt 3 comes, due at 2026-11-21 10:00:00.000Z" in said
    assert row["skip_id"] in said
    named = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempts", "message_id")
    assert tuple(row[name] for name in named) == ("g", "orders", "broker-a", 0, 1, 2, "ID1")
    assert row["reason"] == "no use"
    assert "@" in row["operator"]
    for again in ([], ["--execute"]):
        assert main(command(ledger, 1, *again)) == 1
        assert "is given up already, since" in (said := capsys.readouterr().err)
        assert f"by {row['operator']}: no use" in said
    assert len(rows(ledger)) == 1


@pytest.mark.parametrize(("offset", "attempts", "behind"), [(2, 0, 1), (3, 0, 1), (9, 1, 0)])
def test_a_parked_message_is_given_up_when_its_turn_has_come(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str], offset: int, attempts: int, behind: int
) -> None:
    assert main(command(ledger, offset, "--execute", "--format", "json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["attempts"], answer["parked_behind"]) == ("PARKED", attempts, behind)
    assert (answer["due_at"], answer["executed"]) == (None, True)
    assert [row["attempts"] for row in rows(ledger)] == [attempts]


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (0, "message ID0 is done: acknowledged at attempt 1 of group g: thanks (orders, broker broker-a"),
        (5, "message ID5 is given up already at attempt 1 of group g: negative amount"),
        (6, "message ID6 is dropped already at attempt 1 of group g"),
        (7, "group g has passed it without an attempt: it began behind it, its tags 'A' leave it out"),
        (8, "group g has passed it without an attempt"),
    ],
)
def test_a_message_that_the_group_is_done_with_or_has_passed_is_refused(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str], offset: int, said: str
) -> None:
    for more in ([], ["--execute"]):
        assert main(command(ledger, offset, *more)) == 1
        assert said in capsys.readouterr().err
    assert rows(ledger) == []


def test_a_queue_of_which_retention_left_its_own_row_was_read(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was deleted is done; what comes behind it may be given up, if the broker has it."""
    queue = {"consumer_group": "g", "topic": "orders", "broker_name": "broker-a", "queue_id": 1}
    append(ledger, CONSUMER_OFFSETS, retained_from.rows([queue | {"next_offset": 7}], START).to_pylist())
    assert main(command(ledger, 6, "--queue", "1")) == 1
    said = capsys.readouterr().err
    assert "what became of the messages before offset 7 was deleted by maintenance (--keep-days)" in said
    assert main(command(ledger, 7, "--queue", "1")) == 1
    assert NOBODY in capsys.readouterr().err
    found = GroupLedger(str(ledger), "g").state(Place("orders", "broker-a", 1, 7))
    assert found == Reached(7, "A"), "the tags are those of the topic's other queue"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--reason", " "], "--reason says why"),
        (["--reason", "x" * 501], "--reason has 500 characters at most"),
        (["--queue", "1"], "group g has not read that queue with this ledger"),
        (["--topic", "elsewhere"], "group g has not read that queue with this ledger"),
        (["--ledger", "nowhere"], "no ledger at"),
    ],
)
def test_what_names_no_message_is_refused(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main(command(ledger, 1, "--execute", *more)) == 1
    assert said in capsys.readouterr().err


def test_a_group_that_ran_in_broadcast_mode_only_is_refused(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its messages have one attempt; its driver writes under another name in Delta's log."""
    nothing = pa.Table.from_pylist([], schema=DELIVERIES.arrow_schema)
    ledger.append_arrow(nothing, DELIVERIES, app_id="lakemq/other/query", version=1)
    assert main(command(ledger, 8, group="other")) == 1
    assert "group other has run with the ledger" in (said := capsys.readouterr().err)
    assert "in broadcast mode only" in said
    assert main(command(ledger, 8, group="othr")) == 1
    assert "there is no group othr: did you mean other?" in capsys.readouterr().err


class _Knows(Client):
    """A broker that has the topic."""

    def brokers(self, topic: str | None = None) -> Any:
        return {"broker-a": self}


def test_an_offset_that_was_given_again_has_two_messages_and_one_of_them_is_named(ledger: PathLedger) -> None:
    again = {"consumer_group": "g", "topic": "orders", "broker_name": "broker-a", "queue_id": 0}
    again |= {"from_offset": 1, "to_offset": 3, "epoch_before": 1, "epoch": 65, "named": "broker-a@65"}
    append(ledger, TRUNCATED_RANGES, [again])
    where = {"topic": "orders", "queue": 0, "broker": None, "group": "g", "ledger": str(ledger)}
    asked = {"reason": "no use", "execute": False, "format": "json", "conf": []}
    with _Knows(NOBODY) as client:
        with pytest.raises(WrongUsage, match=r"offset 1 .* --broker broker-a@65, .*--broker broker-a"):
            skip(client, Namespace(**where, **asked, offset=1))
        with pytest.raises(InvalidRequest, match="is done: acknowledged"):
            skip(client, Namespace(**where, **asked, offset=0))


def test_so_many_are_open_at_most(ledger: PathLedger) -> None:
    append(ledger, SKIPPED_MESSAGES, [skipped(2, 0), skipped(3, 0), skipped(5, 0)])
    group, at = GroupLedger(str(ledger), "g"), Place("orders", "broker-a", 0, 1)
    with Client(NOBODY) as client:
        assert look(group, client, at, most_open=3).attempts == 2, "the message at 5 is dead"
        with pytest.raises(
            InvalidRequest, match="2 messages of group g are given up and have had no attempt"
        ):
            look(group, client, at, most_open=2)


def test_a_skip_beside_another_is_refused(ledger: PathLedger, capsys: pytest.CaptureFixture[str]) -> None:
    lock = WriterLock(ledger.directory, SKIPPED_MESSAGES.name)
    lock.acquire()
    assert main(command(ledger, 1, "--execute")) == 1
    lock.release()
    assert "STORE_LOCKED" in capsys.readouterr().err


def test_the_broker_is_asked_only_for_what_the_ledger_does_not_know(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(ledger, 10)) == 1
    assert NOBODY in capsys.readouterr().err
