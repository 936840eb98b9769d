"""What writers say they sent and what they were answered, kept in files that outlive a killed broker.

Owns the journal format: one JSON line before a request leaves, one after its answer, each fsynced. A request
without an answer line is unknown: it may be stored or not, but whole or not at all.
Written by the chaos writers, read by tests/support/checker.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["ok", "failed", "unknown"]
Placement = tuple[int, int, int]
"""queue id, first queue offset, count."""


@dataclass(slots=True)
class Sent:
    """One request of one writer.

    Attributes:
        writer: who sent it; a writer sends its next request when it knows the outcome of this one.
        number: position in the writer's sequence.
        ids: identities of its messages, in order.
        outcome: ok = acknowledged; failed = refused, so not stored; unknown = no answer.
        placed: where the answer says the messages lie.
    """

    writer: str
    number: int
    topic: str
    ids: list[str]
    outcome: Outcome = "unknown"
    placed: list[Placement] = field(default_factory=list)


class Journal:
    """The journal of one writer, appended to across restarts of the broker."""

    def __init__(self, folder: Path, writer: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = writer
        path = folder / f"{writer}.jsonl"
        self._number = sum(1 for _ in read_journal(path)) if path.exists() else 0
        self._file = path.open("ab")

    @property
    def next_number(self) -> int:
        """Returns the number the next request gets."""
        return self._number

    def sending(self, topic: str, ids: Sequence[str]) -> int:
        """Notes, durably, that a request is about to leave; returns its number."""
        number = self._number
        self._number += 1
        self._write({"number": number, "topic": topic, "ids": list(ids)})
        return number

    def answered(self, number: int, outcome: Outcome, placed: Sequence[Placement] = ()) -> None:
        """Notes, durably, what was answered."""
        self._write({"number": number, "outcome": outcome, "placed": list(placed)})

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fdatasync(self._file.fileno())


def read_journal(path: Path) -> Iterator[Sent]:
    """Yields the requests of one writer in the order they were sent."""
    requests: dict[int, Sent] = {}
    for line in path.read_bytes().splitlines():
        entry = json.loads(line)
        number = entry["number"]
        if "ids" in entry:
            requests[number] = Sent(path.stem, number, entry["topic"], entry["ids"])
        else:
            requests[number].outcome = entry["outcome"]
            requests[number].placed = [(queue, first, count) for queue, first, count in entry["placed"]]
    yield from requests.values()


def read_journals(folder: Path) -> list[Sent]:
    """Returns the requests of every writer."""
    return [sent for path in sorted(folder.glob("*.jsonl")) for sent in read_journal(path)]
