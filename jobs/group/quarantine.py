"""What a group does about calls of its handler that ended or held their worker, over the next batches.

Owns the note beside the checkpoint of it: that the handler has a process of its own, and the batch that is
handled in parts since that was not enough.

Invariants: it outlives the driver; the process of its own ends when no call has died or been given up for
QUIET_BATCHES batches, all of it with another handler. What cannot be read counts as none.

Processes: the driver.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.group.known_attempts import Attempt
from jobs.handler.invocation import HandlerHost

_log = logging.getLogger(__name__)

QUIET_BATCHES = 100
"""After so many batches in which every call returned the handler is called in Spark's worker again."""


class Quarantine:
    """Where the calls of a group's next batch are made.

    Args:
        file: Where it is noted.
        host: What the settings say.
        handler: Whose calls they are: another handler's note counts for nothing.
    """

    def __init__(self, file: Path, host: HandlerHost, handler: str) -> None:
        self._file = file
        self._host = host
        self._handler = handler
        self._left = 0
        self._parted: tuple[str, int] | None = None
        self._blamed: frozenset[Attempt] = frozenset()
        self._read()

    @property
    def host(self) -> HandlerHost:
        """Where and how the handler is called."""
        return replace(self._host, isolation="process") if self._left > 0 else self._host

    def begin(self) -> None:
        """Has the handler called in a process of its own from now on."""
        self._stay(QUIET_BATCHES)

    def learn(self, ended: int) -> None:
        """Takes how many calls of a batch ended their process or were given up in it."""
        if self._host.isolation == "process":
            return
        if ended:
            if not self._left:
                _log.warning(
                    "calls of the handler ended or held their worker: it has a process of its own until "
                    "every call of %s batches has returned",
                    QUIET_BATCHES,
                )
            self._stay(QUIET_BATCHES)
        elif self._left:
            self._stay(self._left - 1)

    def parted(self, query_id: str, batch_id: int) -> frozenset[Attempt] | None:
        """The messages that a batch's workers are known to die of; None: it is not handled in parts."""
        return self._blamed if self._parted == (query_id, batch_id) else None

    def part(self, query_id: str, batch_id: int, blamed: Collection[Attempt] = ()) -> None:
        """Has a batch handled in parts, also when the driver starts again.

        Args:
            query_id: The streaming query.
            batch_id: Its batch.
            blamed: Messages of it that its workers die of.
        """
        self._parted = query_id, batch_id
        self._blamed = frozenset(blamed)
        self._note()

    def _stay(self, batches: int) -> None:
        if batches != self._left:
            self._left = batches
            self._note()

    def _note(self) -> None:
        parted = None if self._parted is None else [*self._parted, sorted(self._blamed)]
        note = {"batches": self._left, "of": self._handler, "parted": parted}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft = self._file.with_suffix(".draft")
            draft.write_text(json.dumps(note), encoding="utf-8")
            draft.replace(self._file)
        except OSError as error:
            _log.warning("that calls of the handler died cannot be noted: %s", error)

    def _read(self) -> None:
        try:
            found: Any = json.loads(self._file.read_text(encoding="utf-8"))
            if found["of"] != self._handler:
                return
            left = int(found["batches"])
            if found["parted"] is not None:
                query_id, batch_id, blamed = found["parted"]
                blamed = frozenset((str(t), str(b), int(q), int(o), int(a)) for t, b, q, o, a in blamed)
                self._parted, self._blamed = (str(query_id), int(batch_id)), blamed
            self._left = max(0, left)
        except (OSError, ValueError, LookupError, TypeError, RecursionError, OverflowError):
            return
