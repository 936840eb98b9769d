"""The Parquet file that a task writes, and what its statistics say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tables.check import AtLeast, Check
from delta_tables.ledger.data_files import MOST_TEXT_BYTES, DataFile, FileTask, Statistics
from delta_tables.table import TIMESTAMP
from store_native.errors import LakeMQError

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("at", TIMESTAMP), ("left_out", pa.int32())])
WRITTEN = pa.schema([field for field in SCHEMA if field.name != "left_out"])
SKIPPING = ("n", "text", "at")
CHECK = Check("positive", (AtLeast("n", 0),))
NUMBERS = [pa.RecordBatch.from_pydict({"id": [0]})]


def batch(*rows: tuple[int | None, str | None, datetime | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"n": n, "text": text, "at": at, "left_out": 1} for n, text, at in rows], schema=SCHEMA
    )


def at(microseconds: int) -> datetime:
    return datetime(2026, 11, 29, 12, 0, 0, microseconds, UTC)


def task(directory: Path, *batches: pa.RecordBatch | Exception, **options: Any) -> FileTask:
    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert list(numbers) == NUMBERS
        for each in batches:
            if isinstance(each, Exception):
                raise each
            yield each

    return FileTask(directory, WRITTEN, SKIPPING, (CHECK,), rows, **options)


def written(made: FileTask) -> list[DataFile]:
    return [DataFile(**row) for found in made(iter(NUMBERS)) for row in found.to_pylist()]


def test_a_tasks_batches_are_one_file_of_the_chosen_columns(tmp_path: Path) -> None:
    batches = [batch((3, "c", at(5))), batch(), batch((1, "a", None), (2, None, at(4)))]
    (file,) = written(task(tmp_path, *batches))
    there = tmp_path / file.path
    assert [*tmp_path.iterdir()] == [there]
    assert (file.size_bytes, file.modified_ms) == (
        there.stat().st_size,
        there.stat().st_mtime_ns // 1_000_000,
    )
    found = pq.read_table(there)
    assert found == pa.Table.from_batches(batches).drop_columns(["left_out"])
    metadata = pq.ParquetFile(there).metadata
    assert metadata.num_row_groups == 1
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    assert json.loads(file.statistics) == {
        "numRecords": 3,
        "minValues": {"n": 1, "text": "a", "at": "2026-11-29T12:00:00.000004Z"},
        "maxValues": {"n": 3, "text": "c", "at": "2026-11-29T12:00:00.000005Z"},
        "nullCount": {"n": 0, "text": 1, "at": 1},
    }


def test_a_column_of_another_type_is_written_as_the_tables(tmp_path: Path) -> None:
    other = pa.schema(
        [
            ("at", pa.timestamp("ms", "UTC")),
            ("n", pa.int32()),
            ("text", pa.large_string()),
            ("more", pa.int8()),
        ]
    )
    row = {"n": 7, "text": "b", "at": at(5_000), "more": 1}
    (file,) = written(task(tmp_path, pa.RecordBatch.from_pylist([row], schema=other), batch((1, "a", None))))
    found = pq.read_table(tmp_path / file.path)
    assert found.schema == WRITTEN
    assert found.column("n").to_pylist() == [7, 1]
    with pytest.raises(pa.ArrowInvalid):
        written(task(tmp_path, pa.RecordBatch.from_pydict({"n": ["x"], "text": ["a"], "at": [None]})))
    assert [*tmp_path.iterdir()] == [tmp_path / file.path]


def test_two_tasks_have_files_of_different_names(tmp_path: Path) -> None:
    one, other = task(tmp_path, batch((1, "a", None))), task(tmp_path, batch((1, "a", None)))
    names = {file.path for file in (*written(one), *written(other), *written(other))}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert len(names) == 3


@pytest.mark.parametrize("batches", [(), (batch(),)])
def test_a_task_without_a_row_makes_no_file(tmp_path: Path, batches: tuple[pa.RecordBatch, ...]) -> None:
    assert written(task(tmp_path, *batches)) == []
    assert list(tmp_path.iterdir()) == []


def test_many_rows_are_written_while_they_come(tmp_path: Path) -> None:
    size = batch((1, "a", at(1))).select(["n", "text", "at"]).nbytes
    (file,) = written(task(tmp_path, *[batch((n, "a", at(n))) for n in range(5)], row_group_bytes=2 * size))
    assert [
        pq.ParquetFile(tmp_path / file.path).metadata.row_group(group).num_rows for group in range(3)
    ] == [2, 2, 1]
    assert json.loads(file.statistics)["maxValues"]["n"] == 4


@pytest.mark.parametrize("row_group_bytes", [1, 1 << 20])
def test_a_task_that_fails_leaves_no_file(tmp_path: Path, row_group_bytes: int) -> None:
    broken = task(
        tmp_path, batch((1, "a", None)), KeyError("the handler's host"), row_group_bytes=row_group_bytes
    )
    with pytest.raises(KeyError):
        written(broken)
    refused = task(tmp_path, batch((1, "a", None)), batch((-1, "a", None)), row_group_bytes=row_group_bytes)
    with pytest.raises(LakeMQError, match="positive"):
        written(refused)
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    under_way: list[Any] = []

    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield batch((1, "a", None))
        assert len(list(tmp_path.iterdir())) == 1
        raise GeneratorExit

    made = FileTask(tmp_path, pa.schema([SCHEMA.field("n")]), ("n",), (), rows, row_group_bytes=1)
    with pytest.raises(GeneratorExit):
        under_way.extend(made(iter(NUMBERS)))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*/away/part-.*\.parquet'"):
        written(task(tmp_path / "away", batch((1, "a", None))))


_TOO_LARGE = """
import resource, signal, sys
from pathlib import Path
from tests.unit.delta_tables.ledger.test_data_files import at, batch, task, written
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    batches = [batch((n, "a" * n, at(n))) for n in range(2000)]
    written(task(Path(sys.argv[1]), *batches, row_group_bytes=30_000))
except OSError as error:
    assert error.errno == 27, error.errno
    print(error)
"""


@pytest.mark.parametrize("space", ["0", "3", "1000"])
def test_a_disk_that_takes_no_more_is_said_with_the_file_which_is_deleted(tmp_path: Path, space: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _TOO_LARGE, tmp_path, space], capture_output=True, text=True, check=True
    )
    assert "File too large: '" in ran.stdout
    assert ".snappy.parquet'" in ran.stdout
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.none() | st.integers(-(2**63), 2**63 - 1),
                st.none() | st.text(max_size=3),
                st.none() | st.datetimes(timezones=st.just(UTC)),
            ),
            max_size=4,
        ),
        max_size=4,
    )
)
def test_statistics_are_those_of_all_rows(batches: list[list[tuple[Any, ...]]]) -> None:
    statistics = Statistics(SKIPPING)
    for rows in batches:
        statistics.add(batch(*rows).slice(0))
    said = json.loads(statistics.as_json())
    everything = [row for rows in batches for row in rows]
    assert said["numRecords"] == len(everything)
    for place, name in enumerate(SKIPPING):
        there = [row[place] for row in everything if row[place] is not None]
        assert said["nullCount"].get(name, 0) == len(everything) - len(there)
        least, most = said["minValues"].get(name), said["maxValues"].get(name)
        if not there:
            assert least is None
            assert most is None
        elif name == "text":
            assert (least.encode(), most.encode()) == (
                min(text.encode() for text in there),
                max(text.encode() for text in there),
            )
        elif name == "at":
            assert (datetime.fromisoformat(least), datetime.fromisoformat(most)) == (min(there), max(there))
        else:
            assert (least, most) == (min(there), max(there))


def test_a_long_text_has_its_column_told_of_by_its_nulls_only() -> None:
    for texts in (
        ["b", "a" * (MOST_TEXT_BYTES + 1)],
        ["b", "c" * (MOST_TEXT_BYTES + 1)],
        ["é" * MOST_TEXT_BYTES],
    ):
        statistics = Statistics(SKIPPING)
        statistics.add(batch((1, "m", at(1))))
        for text in texts:
            statistics.add(batch((1, text, at(1))))
        statistics.add(batch((2, None, at(1)), (2, "z", at(1))))
        said = json.loads(statistics.as_json())
        assert said["minValues"] == {"n": 1, "at": "2026-11-29T12:00:00.000001Z"}
        assert said["maxValues"] == {"n": 2, "at": "2026-11-29T12:00:00.000001Z"}
        assert said["nullCount"] == {"n": 0, "text": 1, "at": 0}
    statistics = Statistics(SKIPPING)
    statistics.add(batch((1, "a" * MOST_TEXT_BYTES, at(1))))
    assert json.loads(statistics.as_json())["maxValues"]["text"] == "a" * MOST_TEXT_BYTES


def test_a_letter_of_two_surrogates_is_written_as_it_is() -> None:
    """`deltalake` takes the escapes of U+100000 and above for another letter, and leaves files out."""
    statistics = Statistics(("text",))
    statistics.add(batch((1, "\U0010ffff", None)))
    assert '"text": "\U0010ffff"' in statistics.as_json()


def test_a_time_behind_the_year_9999_is_not_told_of() -> None:
    late = pa.array([253_402_300_800_000_000, 0]).cast(TIMESTAMP)
    statistics = Statistics(("at",))
    statistics.add(pa.RecordBatch.from_pydict({"at": late}))
    assert json.loads(statistics.as_json())["maxValues"] == {}


def test_a_text_that_is_no_utf_8_is_not_told_of() -> None:
    broken = pa.array([b"\xff", b"a"]).cast(pa.binary()).view(pa.string())
    statistics = Statistics(("text",))
    statistics.add(pa.RecordBatch.from_pydict({"text": broken}))
    assert json.loads(statistics.as_json()) == {
        "numRecords": 2,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"text": 0},
    }
