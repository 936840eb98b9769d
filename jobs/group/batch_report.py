"""What a group's batch came to, for whoever watches it run.

Owns the report's numbers; they are the job's own, nothing is asked for them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchReport:
    """One batch that is in the ledger.

    Attributes:
        messages: handled in it.
        retried: of them come again.
        given_up: of them are DEAD, or DROPPED in broadcast mode.
        seconds: from its plan to its report.
        behind: messages of the subscription not read yet, as the broker last said; None when it did not.
        put_off: not handled, since the batch took too long: they come again.
        topics: what the group reads by now, its retry topic among them.
    """

    messages: int
    retried: int
    given_up: int
    seconds: float
    behind: int | None
    put_off: int = 0
    topics: frozenset[str] = frozenset()

    @property
    def acknowledged(self) -> int:
        """Messages that are done."""
        return self.messages - self.retried - self.given_up
