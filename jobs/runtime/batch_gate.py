"""The gate batches pass, so that a job can stop between them.

Owns the count of batches inside Python.

Invariants: a stop never comes in the middle of a batch, where Spark would print a StackOverflowError: it
closes the gate, waits for the batches inside, and only then refuses those that Spark had planned meanwhile.
Nothing of them was done, they run at the next start. A batch inside that cannot end because the broker is
away is given up: it too runs at the next start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


class JobStopped(Exception):
    """Ends a batch because the job is stopping; the next start runs it, or finds it in the ledger."""


class BatchGate:
    """Counts batches in progress; once closed it holds new ones back, then refuses them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = self._resting = 0
        self._closed = False
        self._refusing = False
        self._given_up = False

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Passes the gate for one batch; waits while the gate is closed.

        Raises:
            JobStopped: the job ends without this batch.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._closed or self._refusing)
            if self._refusing:
                raise JobStopped("the job is stopping; this batch runs at the next start")
            self._inside += 1
        try:
            yield
        except Exception as error:
            if self._given_up:
                _log.debug("the batch that was given up ended", exc_info=error)
                # Without its cause: Spark searches the text for an interruption, with an expression that ends
                # in a StackOverflowError where a Java stack stands in it.
                raise JobStopped("the job stopped without this batch; it runs at the next start") from None
            raise
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Holds new batches back; those inside go on."""
        with self._changed:
            self._closed = True

    def await_empty(self, timeout_s: float | None = None) -> bool:
        """Waits until no batch is inside; False when that took longer than the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._inside == 0, timeout_s)

    def give_up(self) -> None:
        """Counts a failure of a batch inside as part of the stop, from now on."""
        with self._changed:
            self._closed = self._given_up = True
            self._changed.notify_all()

    def rest(self, timeout_s: float) -> None:
        """Waits inside a batch that can do nothing for so long; a stop gives it up at once.

        Raises:
            JobStopped: the job stops without the rest of this batch.
        """
        with self._changed:
            self._resting += 1
            try:
                if self._changed.wait_for(lambda: self._closed, timeout_s):
                    self._changed.wait_for(lambda: self._given_up or self._refusing)
                    raise JobStopped("the job is stopping; what is left of this batch runs at the next start")
            finally:
                self._resting -= 1

    @property
    def is_given_up(self) -> bool:
        """Whether the batch inside is given up: its failures are the stop's."""
        return self._given_up

    @property
    def all_rest(self) -> bool:
        """Whether batches are inside that do nothing but wait."""
        with self._changed:
            return self._inside == self._resting > 0

    def refuse(self) -> None:
        """Refuses the batches held back, and any that come later."""
        with self._changed:
            self._closed = self._refusing = True
            self._changed.notify_all()
