"""What `lakemq outbox` says: the messages that wait and why, and nothing given up without --execute."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.ledger_reader import LedgerReader
from delta_tables.refused_sends import REFUSED_SENDS
from delta_tables.sent_messages import SENT_MESSAGES
from delta_tables.written_rows import WRITTEN_ROWS
from lakemq.cli.app import main
from tests.support.ledger_rows import START, append, delivery, path_ledger

KEY = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")


def sends(offset: int, *topics: str, group: str = "g") -> dict[str, Any]:
    """A row of deliveries that sends a message to each of these topics."""
    plain = {
        "keys": ["17"],
        "tags": None,
        "properties": [],
        "sharding_key": None,
        "delay_level": 0,
        "body": b"b",
    }
    outbox = [
        plain | {"topic": topic, "message_id": f"S{offset}{number}"}
        for number, topic in enumerate(topics, start=1)
    ]
    return delivery(offset, consumer_group=group, sends=len(topics), outbox=outbox)


def of(row: dict[str, Any], number: int) -> dict[str, Any]:
    return {name: row[name] for name in KEY} | {"number": number}


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    rows = [sends(0, "a"), sends(1, "a", "b"), sends(2, "a", "b"), sends(3, "b", group="other"), delivery(4)]
    append(made, DELIVERIES, rows)
    append(made, SENT_MESSAGES, [of(rows[0], 1), of(rows[1], 1)])
    refusal = {"message_id": "ID1", "code": "NO_PERMISSION"}
    late = START + timedelta(minutes=5)
    refusals = [
        of(rows[1], 2) | refusal | {"error": "at first", "refused_at": START},
        of(rows[1], 2) | refusal | {"error": "topic[b] is not writable", "refused_at": late},
    ]
    append(made, REFUSED_SENDS, refusals)
    return made


def waiting(ledger: PathLedger, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    assert main(["outbox", "list", "--group", "g", "--ledger", str(ledger), "--format", "json", *more]) == 0
    return [message["sent_message_id"] for message in json.loads(capsys.readouterr().out)]


def test_the_messages_that_wait_are_listed_with_what_a_broker_said(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert waiting(ledger, capsys) == ["S12", "S21", "S22"]
    assert waiting(ledger, capsys, "--where", "code = 'NO_PERMISSION'") == ["S12"]
    assert waiting(ledger, capsys, "--where", "sent_topic = 'b' AND queue_offset = 2") == ["S22"]
    assert main(["outbox", "list", "--group", "g", "--ledger", str(ledger)]) == 0
    first = next(line for line in capsys.readouterr().out.splitlines() if "S12" in line)
    assert "NO_PERMISSION" in first
    assert "topic[b] is not writable" in first
    (row,) = LedgerReader(str(ledger)).sql("SELECT * FROM pending_sends WHERE queue_offset = 1").to_pylist()
    assert (row["sends"], row["waiting"], row["code"], row["error"]) == (
        *(2, 1, "NO_PERMISSION"),
        "topic[b] is not writable",
    )


def test_a_discard_is_a_preview_until_it_is_to_be_done(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["outbox", "discard", "--group", "g", "--ledger", str(ledger)]
    command += ["--where", "sent_topic = 'b'", "--reason", "no such invoices"]
    assert main(command) == 0
    assert (
        "2 messages and rows that group g sends would be given up; --execute does it"
        in capsys.readouterr().out
    )
    assert waiting(ledger, capsys) == ["S12", "S21", "S22"]
    assert main([*command, "--execute"]) == 0
    assert "2 messages and rows that group g sends are given up (discard " in capsys.readouterr().out
    assert waiting(ledger, capsys) == ["S21"]
    reader = LedgerReader(str(ledger))
    rows = reader.sql("SELECT * FROM discarded_sends ORDER BY queue_offset").to_pylist()
    named = (
        "consumer_group",
        "queue_offset",
        "number",
        "sent_topic",
        "sent_message_id",
        "predicate",
        "reason",
    )
    assert [tuple(row[name] for name in named) for row in rows] == [
        ("g", 1, 2, "b", "S12", "sent_topic = 'b'", "no such invoices"),
        ("g", 2, 2, "b", "S22", "sent_topic = 'b'", "no such invoices"),
    ]
    assert all(row["operator"] and row["discard_id"] and row["discarded_at"] for row in rows)
    left = reader.sql("SELECT queue_offset, waiting FROM pending_sends WHERE consumer_group = 'g'")
    assert left.to_pylist() == [{"queue_offset": 2, "waiting": 1}]
    assert main([*command, "--execute"]) == 0
    assert "0 messages" in capsys.readouterr().out, "each once"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--reason", " "], "--reason says why"),
        (["--reason", "x", "--where", "true) OR (true"], "--where is one condition"),
        (["--reason", "x", "--where", "no_such = 1"], "no_such"),
    ],
)
def test_a_discard_without_a_reason_or_a_condition_is_refused(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(["outbox", "discard", "--group", "g", "--ledger", str(ledger), "--execute", *given]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["list"], ["discard", "--reason", "x"]], ids=["list", "discard"])
def test_a_group_that_is_not_there_is_refused(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    assert main(["outbox", *verb, "--group", "othr", "--ledger", str(ledger)]) == 1
    said = capsys.readouterr()
    assert ("there is no group othr: did you mean other?" in said.err, said.out) == (True, "")


def test_a_discard_beside_another_is_refused(ledger: PathLedger, capsys: pytest.CaptureFixture[str]) -> None:
    lock = WriterLock(ledger.directory, "discarded_sends")
    lock.acquire()
    command = ["outbox", "discard", "--group", "g", "--ledger", str(ledger), "--reason", "x", "--execute"]
    assert main(command) == 1
    lock.release()
    assert "STORE_LOCKED" in capsys.readouterr().err


def test_rows_for_tables_wait_and_are_given_up_as_messages_are(
    ledger: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"table_name": table, "row_json": f'{{"order":{n}}}'} for n, table in enumerate(("t", "u", "t"))]
    writing = sends(5, "a") | {"writes": 3, "table_rows": rows}
    append(ledger, DELIVERIES, [writing, delivery(6, writes=1, table_rows=rows[:1])])
    append(ledger, WRITTEN_ROWS, [of(writing, 3) | {"table_name": "u"}])
    append(ledger, SENT_MESSAGES, [of(writing, 1)])
    refusal = {"message_id": "ID5", "code": "TABLE_REFUSED", "sent_table": "t", "refused_at": START}
    append(ledger, REFUSED_SENDS, [of(writing, 2) | refusal])
    command = ["outbox", "list", "--group", "g", "--ledger", str(ledger), "--format", "json"]
    assert main([*command, "--where", "sent_table = 't'"]) == 0
    found = json.loads(capsys.readouterr().out)
    named = ("queue_offset", "number", "sent_topic", "row_json", "code")
    assert [tuple(row[name] for name in named) for row in found] == [
        (5, 2, None, '{"order":0}', "TABLE_REFUSED"),
        (5, 4, None, '{"order":2}', None),
        (6, 1, None, '{"order":0}', None),
    ]
    discard = ["outbox", "discard", "--group", "g", "--ledger", str(ledger), "--reason", "x", "--execute"]
    assert main([*discard, "--where", "sent_table = 't' AND queue_offset = 5"]) == 0
    left = LedgerReader(str(ledger)).sql(
        "SELECT queue_offset, waiting, waiting_rows FROM pending_sends WHERE writes > 0"
    )
    assert left.to_pylist() == [{"queue_offset": 6, "waiting": 0, "waiting_rows": 1}]
    given_up = LedgerReader(str(ledger)).sql("SELECT sent_table, number FROM discarded_sends ORDER BY number")
    assert given_up.to_pylist() == [{"sent_table": "t", "number": 2}, {"sent_table": "t", "number": 4}]
