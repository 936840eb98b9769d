"""A batch as the ledger knows it.

Owns its name, under which each of its commits is there once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NamedBatch:
    """A batch of one group's query.

    Attributes:
        group: the group.
        query_id: the checkpoint's.
        batch_id: its number in that.
    """

    group: str
    query_id: str
    batch_id: int

    @property
    def application(self) -> str:
        """The checkpoint as Delta's writer: batch ids start anew with a new one, so does the query id."""
        return f"lakemq/{self.group}/{self.query_id}"
