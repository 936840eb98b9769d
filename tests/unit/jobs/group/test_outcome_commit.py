"""The last look at the lease before a batch's handler is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from delta_tables.ledger import ledger_at
from jobs.group.named_batch import NamedBatch
from jobs.group.outcome_commit import OutcomeCommit
from store_native.errors import InvalidRequest


class LostLease:
    """A lease that another driver has."""

    def check(self) -> None:
        raise InvalidRequest("LEASE_CONFLICT", "group[g] is being consumed by another")


class Fence:
    """Says what was appended, which evaluates it and so calls the handler."""

    def __init__(self) -> None:
        self.appended: list[int] = []

    def append_outcomes(self, outcomes: Any, batch_id: int) -> None:
        self.appended.append(batch_id)


def test_a_driver_that_has_lost_the_group_does_not_even_call_the_handler(tmp_path: Path) -> None:
    fence, begun = Fence(), list[int]()
    anyone: Any = None
    commit = OutcomeCommit(
        anyone, ledger_at(str(tmp_path)), cast("Any", LostLease()), cast("Any", fence), begun.append
    )
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        commit.append(cast("Any", None), NamedBatch("g", "q", 3))
    assert (begun, fence.appended) == ([], [])
