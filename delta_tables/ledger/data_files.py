"""A data file of a table: the rows that one task makes, where it makes them.

Owns the Parquet file of one task, and the statistics by which readers skip it.

Invariants: a file is part of its table once a commit names it: one whose task failed, or was repeated, is not
read, and maintenance deletes it when it is old. What a file's statistics say holds for each of its rows; what
would take long to say is left out. A task holds the rows of one row group, and one batch more.

Processes: executors. The directory is at the same place on each.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from delta_tables.check import Check
from delta_tables.task_rows import ArrowFunction

ROW_GROUP_BYTES = 32 << 20
MOST_TEXT_BYTES = 256
"""A column with a longer text among its smallest and largest has neither in a file's statistics."""

DATA_FILE_DDL = "path STRING, rows BIGINT, size_bytes BIGINT, modified_ms BIGINT, statistics STRING"
"""The columns of `DataFile` in Spark's words."""
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("modified_ms", pa.int64()),
        ("statistics", pa.string()),
    ]
)


class DataFile(NamedTuple):
    """A file that was written.

    Attributes:
        path: from the table's directory.
        rows: how many it has.
        size_bytes: its size.
        modified_ms: when it was written, milliseconds since 1970.
        statistics: JSON as Delta's log has it: `numRecords`, `minValues`, `maxValues`, `nullCount`.
    """

    path: str
    rows: int
    size_bytes: int
    modified_ms: int
    statistics: str


@dataclass(frozen=True)
class FileTask:
    """Writes what a task makes into a file; a task without rows makes none.

    Attributes:
        directory: the table's.
        schema: the columns that are written, in order; the others are null for who reads the table.
        skipping: those of them whose smallest and largest value the statistics have.
        checks: what holds for each row.
        rows: makes the rows, of which each has at least the schema's columns.
        row_group_bytes: rows of so many bytes are written together, as Arrow counts them.
    """

    directory: Path
    schema: pa.Schema
    skipping: Sequence[str]
    checks: Sequence[Check]
    rows: ArrowFunction
    row_group_bytes: int = ROW_GROUP_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the file as a row of DATA_FILE_DDL.

        Raises:
            OSError: the file cannot be written; what there is of it is deleted.
            LakeMQError: SYSTEM_ERROR, a check does not hold.
            ArrowInvalid: a value is not of its column's type.
        """
        written: DataFile | None = None
        path = self.directory / f"part-{uuid.uuid4()}.snappy.parquet"
        file = _OpenFile(path, self.skipping, self.row_group_bytes)
        try:
            for batch in self.rows(batches):
                rows = batch.select(self.schema.names)
                if not rows.schema.equals(self.schema, check_metadata=True):
                    rows = rows.cast(self.schema)
                for check in self.checks:
                    check.ensure(rows)
                file.add(rows)
            written = file.close()
        finally:
            if written is None:
                file.discard()
        if written is not None:
            yield pa.RecordBatch.from_pylist([written._asdict()], schema=_SCHEMA)


class _OpenFile:
    """A file while rows are added; nothing is on disk before the first row group is."""

    def __init__(self, path: Path, skipping: Sequence[str], row_group_bytes: int) -> None:
        self._path = path
        self._row_group_bytes = row_group_bytes
        self._statistics = Statistics(skipping)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        if batch.num_rows == 0:
            return
        self._statistics.add(batch)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._row_group_bytes:
            self._write()

    def close(self) -> DataFile | None:
        """Ends the file; None without a row."""
        if self._waiting:
            self._write()
        if self._writer is None:
            return None
        with self._named():
            self._writer.close()
            there = self._path.stat()
        modified_ms = there.st_mtime_ns // 1_000_000
        statistics = self._statistics
        return DataFile(*(self._path.name, statistics.rows, there.st_size, modified_ms, statistics.as_json()))

    def discard(self) -> None:
        """Deletes what there is of it."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
        # Also without a writer: it makes the file, and may fail at its first bytes.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        from pyarrow.parquet import ParquetWriter

        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        with self._named():
            if self._writer is None:
                self._writer = ParquetWriter(
                    self._path, rows.schema, compression="snappy", store_schema=False
                )
            self._writer.write_table(rows, row_group_size=rows.num_rows)

    def _named(self) -> _Named:
        return _Named(self._path)


@dataclass(frozen=True)
class _Named:
    """A block whose OSError names the file; Arrow's has the number only, in a text of its own."""

    path: Path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), str(self.path)) from error


@dataclass
class Statistics:
    """Of rows that come batch by batch: how many, and of some columns the nulls, smallest and largest values.

    Attributes:
        skipping: the columns, of numbers, texts or times.
        rows: how many there were.
    """

    skipping: Sequence[str]
    rows: int = field(default=0, init=False)
    _nulls: dict[str, int] = field(default_factory=dict)
    _smallest: dict[str, Any] = field(default_factory=dict)
    _largest: dict[str, Any] = field(default_factory=dict)
    _untold: set[str] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes rows in."""
        self.rows += batch.num_rows
        for name in self.skipping:
            column = batch.column(name)
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if name in self._untold or column.null_count == batch.num_rows:
                continue
            ends = pc.min_max(column)
            try:
                smallest, largest = _told(ends["min"]), _told(ends["max"])
            except (ValueError, OverflowError):
                self._untold.add(name)
                continue
            # Arrow and readers order texts by their bytes; by code points, as here, it is the same.
            self._smallest[name] = min(self._smallest.get(name, smallest), smallest)
            self._largest[name] = max(self._largest.get(name, largest), largest)

    def as_json(self) -> str:
        """The statistics as Delta's log has them."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": self._of(self._smallest),
                "maxValues": self._of(self._largest),
                "nullCount": self._nulls,
            },
            # As two escapes `deltalake` takes a letter from U+100000 on for another one.
            ensure_ascii=False,
        )

    def _of(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: _as_json(value) for name, value in values.items() if name not in self._untold}


def _told(value: pa.Scalar) -> Any:
    """A value that statistics can have.

    Raises:
        ValueError: a text that is long, or no UTF-8.
        OverflowError: a time after the year 9999.
    """
    if pa.types.is_string(value.type) and len(value.as_buffer()) > MOST_TEXT_BYTES:
        raise ValueError("it is long")
    return value.as_py()


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    return value
