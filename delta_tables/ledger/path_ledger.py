"""A ledger in a directory: one Delta table a subdirectory, checkpoints and locks beside them.

Owns the layout of the directory. Small queries and commits go through `deltalake`, without a Spark job.

Invariants: one process of this host writes a table at a time (`writer_locks`), as Delta on a local path
excludes writers inside one JVM only. Its files stay few: each append looks at them (compaction.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_tables.engine_text import said
from delta_tables.ledger.compaction import FILE_SIZES, FileSize, compact
from delta_tables.ledger.data_files import DATA_FILE_DDL, DataFile, FileTask
from delta_tables.ledger.file_append import commit_files, has_files, takes_files
from delta_tables.ledger.location import AUTO_COMPACT, FILE_RETENTION, LedgerLocation, interval
from delta_tables.ledger.log_checkpoint import checkpoint_if_due
from delta_tables.ledger.spans import Span, quoted, within_sql
from delta_tables.ledger.stored_columns import StoredColumn
from delta_tables.ledger.writer_lock import WriterLock
from delta_tables.messages import MESSAGES
from delta_tables.table import KEPT_DAYS, Column, Table
from delta_tables.task_rows import TaskRows
from store_native.errors import from_code

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

_log = logging.getLogger(__name__)

WRITER_VERSION = "delta.minWriterVersion"
_TRIES = 5
_NAMED_HOURS = 24
"""How long the log of a table knows a file that was replaced."""


@dataclass(frozen=True)
class PathLedger(LedgerLocation):
    """A ledger on a path.

    Attributes:
        directory: absolute.
        file_sizes: what small files are put together to.
    """

    directory: Path
    file_sizes: tuple[FileSize, ...] = field(default=FILE_SIZES, kw_only=True, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.directory)

    @property
    def checkpoints(self) -> Path:
        """`_checkpoints` in the ledger's directory."""
        return self.directory / "_checkpoints"

    def checkpoints_of(self, group: str) -> Path:
        """The group's directory in `checkpoints`."""
        # Spark escapes % in a path it is given as a URL-like string; a plain name avoids the question.
        return self.checkpoints / group.replace("%", "=25").replace("|", "=7C")

    def path(self, table: Table) -> Path:
        """The directory of a table."""
        return self.directory / table.name

    def exists(self, table: Table, spark: SparkSession | None = None) -> bool:
        """Whether the table was made; needs no session."""
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(str(self.path(table))))

    def open(self, table: Table) -> DeltaTable:
        """The table as it is now, for `deltalake`."""
        from deltalake import DeltaTable

        return DeltaTable(str(self.path(table)))

    def qualified(self, table: Table) -> str:
        """The table as Spark SQL names it."""
        return f"delta.`{self.path(table)}`"

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """The table as it is when an action runs."""
        return spark.read.format("delta").load(str(self.path(table)))

    def version(self, spark: SparkSession, table: Table) -> int:
        """The table's newest version."""
        return self.open(table).version()

    @property
    def versions_hold_s(self) -> float:
        """Not at all: to ask is the look into a directory."""
        return 0.0

    def rows_within(
        self,
        spark: SparkSession | None,
        table: Table,
        group: str,
        asked: Sequence[Span],
        columns: Sequence[str],
        attempts_from: int | None,
    ) -> pa.Table:
        """A group's rows within some spans; needs no session."""
        import pyarrow as pa
        from deltalake import QueryBuilder

        later = "" if attempts_from is None else f" AND attempt >= {attempts_from}"
        text = (
            f"SELECT {', '.join(columns)} FROM {table.name} "
            f"WHERE consumer_group = {quoted(group)}{later} AND ({' OR '.join(map(within_sql, asked))})"
        )
        return pa.table(QueryBuilder().register(table.name, self.open(table)).execute(text).read_all())

    def append(self, writer: DataFrameWriter, table: Table) -> None:
        """Ends a writer of rows by appending them to a table."""
        writer.save(str(self.path(table)))
        self._tidy(table)

    def append_arrow(self, rows: pa.Table, table: Table, *, app_id: str, version: int) -> bool:
        """Appends a small Arrow table as Delta's transaction (app_id, version); needs no session.

        Returns:
            Whether the rows were appended; False when the table knew this version already.
        """
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        for tries_left in reversed(range(_TRIES)):
            delta = self.open(table)
            if _knows(delta, app_id, version):
                return False
            try:
                write_deltalake(
                    delta,
                    _as_stored(rows, delta),
                    mode="append",
                    commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
                    post_commithook_properties=PostCommitHookProperties(False, False),
                )
            except CommitFailedError:  # another version of the application's came since the look at them
                if not tries_left:
                    raise
            else:
                self._tidy(table, delta)
                return True
        raise AssertionError("the last try returns or raises")

    def append_tasks(
        self, rows: TaskRows, table: Table, delta: DeltaTable, *, app_id: str, version: int
    ) -> bool:
        """Appends what tasks make, in files that they write, as Delta's transaction (app_id, version).

        Whether it is there is looked at again behind the commit: Spark, with which a user may change the
        table in this process, looks whether a version of the log is there, and writes it then.

        Args:
            rows: the rows; not made where the table knows the version already, else once.
            table: the table.
            delta: the table as it was when it was found to take files.
            app_id: Delta's application id.
            version: its version.

        Returns:
            Whether the rows were appended; False when the table knew this version, or a later one.

        Raises:
            LakeMQError: SYSTEM_ERROR, the table was changed while the rows were made, and does not take their
                files, or its log cannot be written; the text names the table and says why.
        """
        from deltalake.exceptions import DeltaError

        if _knows(delta, app_id, version):
            return False
        schema = table.arrow_schema_of(rows.columns)
        write = partial(FileTask, self.path(table), schema, table.skipping, table.checks)
        files = [DataFile(*row) for row in rows.through(write, DATA_FILE_DDL).collect()]
        for tries_left in reversed(range(_TRIES)):
            try:
                commit_files(delta, files, app_id, version)
            except OSError as error:
                raise from_code("SYSTEM_ERROR", f"{self.path(table)}: {said(error)}") from error
            except DeltaError as error:
                failed: Exception | None = error
            else:
                failed = None
            try:
                delta = self.open(table)
            except (DeltaError, OSError) as error:
                if failed is not None:
                    raise
                _log.warning("%s of %s was not looked at behind a commit: %s", table.name, self, said(error))
                return True
            if has_files(delta, files) or (failed is None and _knows(delta, app_id, version)):
                self._tidy(table, delta)
                return True
            if _knows(delta, app_id, version):
                return False
            if not takes_files(delta, table):
                text = "was changed while a batch was handled and is Spark's to write now: start again"
                raise from_code("SYSTEM_ERROR", f"{table.name} of {self} {text}") from failed
            if failed is not None and not tries_left:
                raise from_code("SYSTEM_ERROR", f"{table.name} of {self}: {said(failed)}") from failed
        raise from_code("SYSTEM_ERROR", f"{table.name} of {self} has lost a commit again and again")

    def note_version(self, table: Table, *, app_id: str, version: int) -> bool:
        """Notes the transaction (app_id, version) in a commit without rows; needs no session.

        Spark, which another group of this process may commit with, looks whether a version of the log is
        there, and writes it then: what it wrote over is noted again.

        Returns:
            Whether it was noted; False when the table knew this version already.
        """
        nothing = table.arrow_schema.empty_table()
        if not self.append_arrow(nothing, table, app_id=app_id, version=version):
            return False
        while not _knows(self.open(table), app_id, version):
            self.append_arrow(nothing, table, app_id=app_id, version=version)
        return True

    def _tidy(self, table: Table, delta: DeltaTable | None = None) -> None:
        """Puts small files together behind a commit, which is in whatever becomes of this.

        Replaced ones are deleted where no stream needs them.

        Args:
            table: the table.
            delta: as it is behind a commit without Spark: its log may get a checkpoint.
        """
        from deltalake.exceptions import DeltaError

        try:
            if delta is None:
                delta = self.open(table)
            else:
                checkpoint_if_due(delta, self.path(table))
            if compact(delta, self.file_sizes) and table.kept_hours < KEPT_DAYS * 24:
                # Full: what the log has forgotten by now is found by its age.
                delta.vacuum(dry_run=False, full=True)
        except (DeltaError, OSError, ValueError) as error:
            text = "small files of %s of %s were not put together, or its log got no checkpoint: %s"
            _log.warning(text, table.name, self, said(error))

    def create(self, *tables: Table, spark: SparkSession | None = None) -> None:
        """Creates the tables that are missing, empty; needs no session."""
        from deltalake import DeltaTable

        for table in tables:
            if self.exists(table):
                continue
            DeltaTable.create(
                str(self.path(table)),
                schema=table.described_schema,
                mode="ignore",
                name=table.name,
                description=table.comment,
                configuration={**self.properties(table), **_checks(table)},
                raise_if_key_not_exists=False,  # lakemq.schema_version is none of Delta's
            )

    def create_for(self, written: Sequence[Table], named: Sequence[Table], spark: SparkSession) -> None:
        """Creates what a job writes and fits it to this version; a query of the views makes the rest."""
        self.create(*written)
        self.fit(*written, spark=spark)

    def properties(self, table: Table) -> dict[str, str]:
        """As of any ledger, but that the log forgets a replaced file soon.

        Each checkpoint of the log would name all files of a month again. Here nothing deletes files but
        maintenance, which knows by its age how long one is kept.
        """
        made = {**super().properties(table), FILE_RETENTION: interval(min(table.kept_hours, _NAMED_HOURS))}
        # A stream of Spark's writes the archive, without an append of ours.
        return made | ({AUTO_COMPACT: "true"} if table.name == MESSAGES.name else {})

    def writer_locks(self, tables: Sequence[Table]) -> list[WriterLock]:
        """A lock for each table."""
        return [WriterLock(self.directory, table.name) for table in tables]

    def _stored_columns(self, table: Table, spark: SparkSession | None) -> list[StoredColumn]:
        fields = self.open(table).schema().fields
        return [
            StoredColumn(
                field.name, _as_ddl(field.type), field.nullable, str(field.metadata.get("comment", ""))
            )
            for field in fields
        ]

    def _add_columns(self, added: Sequence[Column], table: Table, spark: SparkSession | None) -> None:
        import pyarrow as pa
        from deltalake import Schema

        listed = pa.schema([column.described_field for column in added])
        self.open(table).alter.add_columns(Schema.from_arrow(listed).fields)

    def _describe(self, silent: Sequence[Column], table: Table, spark: SparkSession | None) -> None:
        # A commit for each, of a hundredth of a second: deltalake changes one at a time. The table's own
        # comment was there from the first release on.
        for column in silent:
            self.open(table).alter.set_column_metadata(column.name, {"comment": column.comment})

    def _stored_properties(self, table: Table, spark: SparkSession | None) -> Mapping[str, str]:
        stored: Mapping[str, str] = self.open(table).metadata().configuration
        return stored

    def _set_properties(
        self, properties: Mapping[str, str], table: Table, spark: SparkSession | None
    ) -> None:
        self.open(table).alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def _stream_from(self, reader: DataStreamReader, table: Table) -> DataFrame:
        return reader.format("delta").load(str(self.path(table)))

    def _stream_to(self, writer: DataStreamWriter, table: Table) -> StreamingQuery:
        return writer.start(str(self.path(table)))


def _knows(delta: DeltaTable, app_id: str, version: int) -> bool:
    known = delta.transaction_version(app_id)
    return known is not None and known >= version


def _checks(table: Table) -> dict[str, str]:
    """The properties of a table's constraints, which only Delta's writers from version 3 on hold to."""
    return {**table.constraints, WRITER_VERSION: "3"} if table.constraints else {}


def _as_stored(rows: pa.Table, delta: DeltaTable) -> pa.Table:
    """The rows with null in the columns that a later version added, in the table's own order."""
    import pyarrow as pa

    stored = pa.schema(delta.schema().to_arrow())
    given = {name.lower(): column for name, column in zip(rows.column_names, rows.columns, strict=True)}
    unknown = given.keys() - {name.lower() for name in stored.names}
    assert not unknown, f"the table was not fitted to {sorted(unknown)}"
    columns = [given.get(field.name.lower(), pa.nulls(rows.num_rows, field.type)) for field in stored]
    return pa.Table.from_arrays(columns, names=stored.names)


def _as_ddl(kind: Any) -> str:
    """A type of deltalake's as Spark writes it."""
    from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType

    if isinstance(kind, ArrayType):
        return f"array<{_as_ddl(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_as_ddl(kind.key_type)},{_as_ddl(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{field.name}:{_as_ddl(field.type)}' for field in kind.fields)}>"
    if isinstance(kind, PrimitiveType):
        return {"integer": "int", "long": "bigint"}.get(kind.type, kind.type)
    return str(kind)
