"""Dead letters in a file: NDJSON or Parquet.

Owns the forms. Parquet has the columns of `dead_letters`; a line of NDJSON has the same names, the body as
`body` where it is text and as `body_base64` where it is not.

Invariants: the file is there whole or not at all, and replaces none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_tables.dead_letters import DEAD_LETTERS
from jobs.dlq.choice import DeadLetterChoice
from lakemq.client.message import body_field, encode_json
from store_native.errors import from_code

FORMS = (".ndjson", ".parquet")


def export(choice: DeadLetterChoice, file: Path) -> int:
    """Writes dead letters into a file; they are read at one moment, all at once.

    Returns:
        How many.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL for another kind of file, or one that is there.
        OSError: The file cannot be written.
    """
    if file.suffix not in FORMS:
        raise from_code("ARGUMENT_ILLEGAL", f"--to is a file named {' or '.join(FORMS)}, not {file.name}")
    if file.exists():
        raise from_code("ARGUMENT_ILLEGAL", f"{file} is there already")
    letters = choice.rows().select(DEAD_LETTERS.column_names).cast(DEAD_LETTERS.arrow_schema)
    with _whole(file) as out:
        if file.suffix == ".parquet":
            pq.write_table(letters, out)
        else:
            for line in lines(letters):
                out.write(line)
    return int(letters.num_rows)


def as_object(letter: dict[str, Any]) -> dict[str, Any]:
    """A dead letter as JSON has it."""
    said = {name: _plain(value) for name, value in letter.items() if name not in ("body", "properties")}
    said["properties"] = dict(letter["properties"] or ())
    name, value = body_field(letter["body"] or b"")
    return said | {name: value}


def lines(letters: pa.Table) -> Iterator[bytes]:
    """The lines of NDJSON."""
    for batch in letters.to_batches(max_chunksize=1_000):
        for letter in batch.to_pylist():
            yield encode_json(as_object(letter)) + b"\n"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


@contextmanager
def _whole(file: Path) -> Iterator[IO[bytes]]:
    """A file that has its name once it is written and on disk."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.link(draft, file)  # unlike a rename it replaces nothing
    except FileExistsError:
        raise from_code("ARGUMENT_ILLEGAL", f"{file} is there already") from None
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
