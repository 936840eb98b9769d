"""Dead letters in a file: all of them, every column, or no file."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.ledger.path_ledger import PathLedger
from jobs.dlq.choice import DeadLetterChoice
from jobs.dlq.discard import discard
from jobs.dlq.export import FORMS, export
from store_native.durable_files import FileDisk
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import append, path_ledger
from tests.unit.jobs.dlq.test_replay import letter


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path / "ledger")
    text = letter(0, keys=["K"], tags="red", properties=[("colour", "blue")], body='{"a": "ü"}'.encode())
    append(made, DEAD_LETTERS, [text, letter(1, body=b"\xff\x00"), letter(2, "other")])
    return made


def test_a_line_of_ndjson_has_every_column(ledger: PathLedger, tmp_path: Path) -> None:
    file = tmp_path / "dead.ndjson"
    assert export(DeadLetterChoice(str(ledger), "g", "true"), file) == 2
    first, second = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    assert first.keys() == set(DEAD_LETTERS.column_names)
    assert (first["body"], first["keys"], first["properties"]) == ('{"a": "ü"}', ["K"], {"colour": "blue"})
    assert first["last_attempt_at"] == "2026-11-22T00:00:00+00:00"
    assert ("body" not in second, second["body_base64"]) == (True, "/wA=")


def test_parquet_has_the_tables_schema(ledger: PathLedger, tmp_path: Path) -> None:
    file = tmp_path / "dead.parquet"
    choice = DeadLetterChoice(str(ledger), "g", "queue_offset = 1")
    assert export(choice, file) == 1
    found = pq.read_table(file)
    assert found.schema.equals(DEAD_LETTERS.arrow_schema)
    assert found.column("body").to_pylist() == [b"\xff\x00"]


def test_a_subquery_of_the_predicate_sees_the_groups_own_dead_letters(
    ledger: PathLedger, tmp_path: Path
) -> None:
    last = "queue_offset = (SELECT max(queue_offset) FROM dead_letters)"
    assert export(DeadLetterChoice(str(ledger), "g", last), tmp_path / "dead.ndjson") == 1


@pytest.mark.parametrize("name", ["dead.csv", "dead"])
def test_another_kind_of_file_is_refused(ledger: PathLedger, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"named \.ndjson or \.parquet"):
        export(DeadLetterChoice(str(ledger), "g", "true"), tmp_path / name)


def test_a_file_that_is_there_stays_as_it_is(ledger: PathLedger, tmp_path: Path) -> None:
    file = tmp_path / "dead.ndjson"
    file.write_text("mine")
    with pytest.raises(InvalidRequest, match="is there already"):
        export(DeadLetterChoice(str(ledger), "g", "true"), file)
    assert file.read_text() == "mine"
    assert [path.name for path in tmp_path.glob("*dead*")] == ["dead.ndjson"]


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_a_file_that_may_not_be_there_for_good_is_none(
    ledger: PathLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Nobody discards dead letters for a file that a power cut takes; the next try finds its name free."""
    file, disk = tmp_path / "dead.ndjson", FileDisk()

    def fails(_: object) -> None:
        raise OSError(errno.EIO, "injected")

    with monkeypatch.context() as failing:
        failing.setattr(disk, call, fails)
        with pytest.raises(OSError, match="injected") as failed:
            export(DeadLetterChoice(str(ledger), "g", "true"), file, disk)
        assert failed.value.filename == str(file)
    assert [path.name for path in tmp_path.glob("*dead*")] == []
    assert export(DeadLetterChoice(str(ledger), "g", "true"), file, disk) == 2


def test_a_directory_that_is_not_there_is_said_of_the_file(ledger: PathLedger, tmp_path: Path) -> None:
    file = tmp_path / "none" / "dead.ndjson"
    with pytest.raises(FileNotFoundError) as failed:
        export(DeadLetterChoice(str(ledger), "g", "true"), file)
    assert failed.value.filename == str(file)


def test_dead_letters_are_held_some_at_a_time_as_they_were_at_one_moment(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path / "ledger")
    for part in range(3):
        append(ledger, DEAD_LETTERS, [letter(part * 100 + offset) for offset in range(100)])
    discard(DeadLetterChoice(str(ledger), "g", "queue_offset = 150"), "no use")
    batches = DeadLetterChoice(str(ledger), "g", "queue_offset >= 50").batches()
    found = [next(batches)]
    append(ledger, DEAD_LETTERS, [letter(offset) for offset in range(300, 400)])
    found += batches
    assert max(each.num_rows for each in found) <= 16
    offsets = [offset for each in found for offset in each.column("queue_offset").to_pylist()]
    assert sorted(offsets) == [*range(50, 150), *range(151, 300)]


def test_a_long_parquet_file_is_written_in_groups_of_rows(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path / "ledger")
    append(ledger, DEAD_LETTERS, [letter(offset, body=bytes([offset]) * (1 << 20)) for offset in range(40)])
    file = tmp_path / "dead.parquet"
    assert export(DeadLetterChoice(str(ledger), "g", "true"), file) == 40
    written = pq.ParquetFile(file)
    assert written.metadata.num_row_groups >= 2
    bodies = dict(
        zip(*(written.read().column(name).to_pylist() for name in ("queue_offset", "body")), strict=True)
    )
    assert bodies == {offset: bytes([offset]) * (1 << 20) for offset in range(40)}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_without_dead_letters_is_one(ledger: PathLedger, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"dead{form}"
    assert export(DeadLetterChoice(str(ledger), "g", "queue_offset = 99"), file) == 0
    assert file.stat().st_size == 0 if form == ".ndjson" else pq.read_table(file).num_rows == 0
