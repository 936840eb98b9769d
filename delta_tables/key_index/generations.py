"""Writing the index: what is new becomes generations, and small generations become larger ones.

Owns which files are indexed, which generations are put together, and how one is written.

Invariants: a generation counts with its last commit, which names its files; one that puts others together
takes their files over with it. So the index is whole behind each commit, and a run that breaks off leaves
what the next drops. Memory follows `PASS_ROWS`, not the ledger. The number of generations follows
the rows: all but `most_small` are of half of `most_rows` or more. It only reads `deliveries`, and takes no
lock of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake

from delta_tables.deliveries import DELIVERIES
from delta_tables.key_index.indexed_files import LISTED, DataFile, IndexedFiles, files_of, whole_index
from delta_tables.key_index.look_up import MOST_FILES, entries
from delta_tables.key_index.message_keys import MESSAGE_KEYS
from delta_tables.ledger.compaction import FILE_SIZES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger.spans import quoted

LEAST_BYTES = FILE_SIZES[0].target_bytes // 2
"""Smaller files of `deliveries` are put together to others while a job appends: they are not indexed."""
MOST_ROWS = 16 << 20
"""Rows of `deliveries` in a generation, but where one file has more."""
MOST_SMALL = 8
PASS_ROWS = 1 << 20
"""So many are sorted in memory at a time."""

_FILE_BYTES = 32 << 20
_GROUP_ROWS = 128 << 10
_SAMPLES = 200
_NAMES = ", ".join(name for name in MESSAGE_KEYS.column_names if name != "generation")


@dataclass(frozen=True)
class KeyIndex:
    """The index of a ledger on a path, to be brought up to date.

    Attributes:
        ledger: the ledger.
        least_bytes: what a file has to have to be indexed.
        most_rows: rows of `deliveries` that are put into one generation.
        most_small: generations that may have less than half of that.
        pass_rows: rows that are sorted in memory at a time.
        committed: told behind each commit; given in tests.
    """

    ledger: PathLedger
    least_bytes: int = LEAST_BYTES
    most_rows: int = MOST_ROWS
    most_small: int = MOST_SMALL
    pass_rows: int = PASS_ROWS
    committed: Callable[[], None] = lambda: None

    def update(self) -> None:
        """Indexes what is new and drops what holds no more; without a large file there is no index.

        Raises:
            Unavailable: STORE_LOCKED when another process writes it.
        """
        deliveries = self.ledger.open(DELIVERIES)
        files = files_of(deliveries, self.ledger.path(DELIVERIES))
        directory = self.ledger.path(MESSAGE_KEYS)
        there = directory.exists()
        if files is None or not (there or any(file.size_bytes >= self.least_bytes for file in files)):
            return
        (lock,) = self.ledger.writer_locks([MESSAGE_KEYS])
        lock.acquire()
        try:
            if there and whole_index(self.ledger) is None:
                shutil.rmtree(directory)  # a part of it is missing
            self._create()
            self._drop(self._compared(files))
            for chunk in self._chunks(self._compared(files).others):
                self._add(chunk)
            while small := self._small(self._compared(files)):
                self._put_together(self._compared(files), small)
                self._drop(self._compared(files))
            # No stream follows it: replaced files are there for the queries under way.
            self._index().vacuum(
                retention_hours=MESSAGE_KEYS.kept_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )
        finally:
            lock.release()

    def _create(self) -> None:
        DeltaTable.create(
            str(self.ledger.path(MESSAGE_KEYS)),
            schema=MESSAGE_KEYS.described_schema,
            mode="ignore",
            partition_by=["generation"],
            name=MESSAGE_KEYS.name,
            description=MESSAGE_KEYS.comment,
            configuration=self.ledger.properties(MESSAGE_KEYS),
            raise_if_key_not_exists=False,
        )

    def _index(self) -> DeltaTable:
        return self.ledger.open(MESSAGE_KEYS)

    def _session(self) -> QueryBuilder:
        return QueryBuilder().register(MESSAGE_KEYS.name, self._index())

    def _compared(self, files: Sequence[DataFile]) -> IndexedFiles:
        return IndexedFiles.of(files, pa.table(self._session().execute(LISTED).read_all()).to_pylist())

    def _generations(self) -> set[int]:
        """All that have a file, also what a run that broke off has left."""
        added = pa.table(self._index().get_add_actions(flatten=True))
        return set(added.column("partition.generation").to_pylist()) if added.num_rows else set()

    def _drop(self, indexed: IndexedFiles) -> None:
        """Drops the generations that tell nothing."""
        empty = sorted(self._generations() - indexed.holding.keys())
        if empty:
            self._index().delete(f"generation IN ({', '.join(map(str, empty))})")
            self.committed()

    def _chunks(self, files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
        """What is to be indexed, as generations: neighbours in time, since they are deleted at one time."""
        chunk: list[DataFile] = []
        for file in files:
            if file.size_bytes < self.least_bytes:
                continue
            more = sum(each.rows for each in chunk) + file.rows
            if chunk and (more > self.most_rows or len(chunk) == MOST_FILES):
                yield chunk
                chunk = []
            chunk.append(file)
        if chunk:
            yield chunk

    def _add(self, chunk: Sequence[DataFile]) -> None:
        session = self._session()
        source = " UNION ALL ".join(f"SELECT {_NAMES} FROM ({part})" for part in entries(session, chunk))
        self._write(session, source, {file.number: file.rows for file in chunk})

    def _small(self, indexed: IndexedFiles) -> list[int]:
        """The generations to put together, the smallest first; none while there are few of them."""
        small = sorted((rows, each) for each, rows in indexed.rows.items() if rows < self.most_rows // 2)
        if len(small) <= self.most_small:
            return []
        chosen: list[int] = []
        total = 0
        for rows, generation in small:
            if len(chosen) > 1 and total + rows > self.most_rows:
                break
            chosen.append(generation)
            total += rows
        return chosen if len(chosen) > 1 else []

    def _put_together(self, indexed: IndexedFiles, generations: Sequence[int]) -> None:
        source = (
            f"SELECT {_NAMES} FROM message_keys WHERE key IS NOT NULL AND ({indexed.condition(generations)})"
        )
        held = {file: rows for each in generations for file, rows in indexed.holding.get(each, {}).items()}
        self._write(self._session(), source, held)

    def _write(self, session: QueryBuilder, source: str, files: dict[int, int]) -> None:
        """Writes a generation out of a SELECT of its entries; it counts with the last commit."""
        generation = max(self._generations(), default=0) + 1
        for part in self._passes(session, source):
            text = f"SELECT CAST({generation} AS BIGINT) AS generation, {_NAMES} FROM ({part}) AS told"
            for rows in _in_turn(session.execute(text), self.pass_rows):
                self._append(rows)
        named = {
            "generation": pa.repeat(pa.scalar(generation, pa.int64()), len(files)),
            "file": pa.array(files.keys(), pa.int64()),
            "rows": pa.array(files.values(), pa.int64()),
        }
        schema = MESSAGE_KEYS.arrow_schema
        columns = [named.get(field.name, pa.nulls(len(files), field.type)) for field in schema]
        self._append(pa.Table.from_arrays(columns, schema=schema))

    def _append(self, rows: pa.Table) -> None:
        if rows.num_rows:
            write_deltalake(
                self._index(),
                rows.cast(MESSAGE_KEYS.arrow_schema),
                mode="append",
                target_file_size=_FILE_BYTES,
                writer_properties=WriterProperties(compression="ZSTD", max_row_group_size=_GROUP_ROWS),
            )
            self.committed()

    def _passes(self, session: QueryBuilder, source: str) -> Iterator[str]:
        """Parts of a SELECT of entries, each sorted by key, and behind the one before."""
        counted = pa.table(session.execute(f"SELECT count(*) AS n FROM ({source}) AS every").read_all())
        rows = counted.column("n")[0].as_py()
        count = -(-rows // self.pass_rows)
        if count <= 1:
            yield f"SELECT * FROM ({source}) AS every ORDER BY key"
            return
        share = min(1.0, _SAMPLES * count / rows)
        drawn = f"SELECT key FROM ({source}) AS every WHERE random() < {share:.9f} ORDER BY key"
        sample = pa.table(session.execute(drawn).read_all()).column("key").to_pylist()
        bounds = [sample[len(sample) * at // count] for at in range(1, count)] if sample else []
        # A key that many messages have is a part of its own, which need not be sorted.
        many = {first for first, second in pairwise(bounds) if first == second}
        below = ""
        for bound in dict.fromkeys(bounds):
            yield f"SELECT * FROM ({source}) AS every WHERE {below}key < {quoted(bound)} ORDER BY key"
            below = f"key >= {quoted(bound)} AND "
            if bound in many:
                yield f"SELECT * FROM ({source}) AS every WHERE key = {quoted(bound)}"
                below = f"key > {quoted(bound)} AND "
        yield f"SELECT * FROM ({source}) AS every WHERE {below}true ORDER BY key"


def _in_turn(batches: Iterable[Any], most_rows: int) -> Iterator[pa.Table]:
    """The rows of an answer, about so many at a time."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(pa.record_batch(batch))
        rows += held[-1].num_rows
        if rows >= most_rows:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)
