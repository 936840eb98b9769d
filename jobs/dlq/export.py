"""Dead letters in a file: NDJSON or Parquet.

Owns the forms. Parquet has the columns of `dead_letters`; a line of NDJSON has the same names, the body as
`body` where it is text and as `body_base64` where it is not.

Invariants: the file is there whole or not at all, and replaces none; once it is written it is there for
good, since the dead letters may be discarded then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_tables.dead_letters import DEAD_LETTERS
from jobs.dlq.choice import DeadLetterChoice
from lakemq.client.message import body_field, encode_json
from store_native.durable_files import DISK, FileDisk
from store_native.errors import from_code

FORMS = (".ndjson", ".parquet")
_ROW_GROUP_BYTES = 16 << 20


def export(choice: DeadLetterChoice, file: Path, disk: FileDisk = DISK) -> int:
    """Writes dead letters into a file, as they are at one moment, some at a time and in no order.

    Args:
        disk: Brings the file to the disk.

    Returns:
        How many.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL for another kind of file, or one that is there.
        OSError: The file cannot be written, or may not be there for good; there is none then.
    """
    if file.suffix not in FORMS:
        raise from_code("ARGUMENT_ILLEGAL", f"--to is a file named {' or '.join(FORMS)}, not {file.name}")
    if file.exists():
        raise from_code("ARGUMENT_ILLEGAL", f"{file} is there already")
    write = _write_parquet if file.suffix == ".parquet" else _write_lines
    with _whole(file, disk) as out:
        return write(choice.batches(), out)


def as_object(letter: dict[str, Any]) -> dict[str, Any]:
    """A dead letter as JSON has it."""
    said = {name: _plain(value) for name, value in letter.items() if name not in ("body", "properties")}
    said["properties"] = dict(letter["properties"] or ())
    name, value = body_field(letter["body"] or b"")
    return said | {name: value}


def _write_lines(batches: Iterable[pa.Table], out: IO[bytes]) -> int:
    count = 0
    for letters in batches:
        for letter in of_table(letters).to_pylist():
            out.write(encode_json(as_object(letter)) + b"\n")
        count += letters.num_rows
    return count


def _write_parquet(batches: Iterable[pa.Table], out: IO[bytes]) -> int:
    count = 0
    with pq.ParquetWriter(out, DEAD_LETTERS.arrow_schema) as writer:
        for letters in _gathered(batches):
            writer.write_table(letters)
            count += letters.num_rows
    return count


def _gathered(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Puts tables together until a row group is worth writing; there is none without rows."""
    waiting: list[pa.Table] = []
    for letters in batches:
        waiting.append(of_table(letters))
        if sum(each.nbytes for each in waiting) >= _ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if any(each.num_rows for each in waiting):
        yield pa.concat_tables(waiting)


def of_table(letters: pa.Table) -> pa.Table:
    """Dead letters with the columns and types of the table, whatever engine has read them."""
    return letters.select(DEAD_LETTERS.column_names).cast(DEAD_LETTERS.arrow_schema)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


@contextmanager
def _whole(file: Path, disk: FileDisk) -> Iterator[IO[bytes]]:
    """A file that has its name once it is written and on disk.

    Raises:
        OSError: As the disk gives it, of the file: nobody knows its draft.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as out:
            yield out
            disk.sync(out)
        os.link(draft, file)  # unlike a rename it replaces nothing
        try:
            disk.sync_directory(file.parent)
        except OSError:
            file.unlink(missing_ok=True)  # it may be gone after a power cut: who sees it would rely on it
            raise
    except FileExistsError:
        raise from_code("ARGUMENT_ILLEGAL", f"{file} is there already") from None
    except OSError as error:
        # What the ledger's files say has a name of theirs, or no number.
        if error.errno is None or error.filename not in (None, str(draft)):
            raise
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            draft.unlink()
