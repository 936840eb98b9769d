"""Whether a group's handler has a process of its own since calls of it ended or held their worker.

Owns the note of that beside the checkpoint.

Invariants: it outlives the driver; it ends when no call has died or been given up for QUIET_BATCHES batches,
and with another handler. What cannot be read counts as none.

Processes: the driver.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

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
        self._left = self._noted()

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

    def _stay(self, batches: int) -> None:
        if batches == self._left:
            return
        self._left = batches
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft = self._file.with_suffix(".draft")
            draft.write_text(json.dumps({"batches": batches, "of": self._handler}), encoding="utf-8")
            draft.replace(self._file)
        except OSError as error:
            _log.warning("that the handler has a process of its own cannot be noted: %s", error)

    def _noted(self) -> int:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            batches, whose = found["batches"], found["of"]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return 0
        return batches if isinstance(batches, int) and batches > 0 and whose == self._handler else 0
