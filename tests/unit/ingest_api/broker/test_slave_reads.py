"""Where a reader goes on: at a slave when what it reads is no longer in memory, and there is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ingest_api.broker.slave_reads import SlaveReads
from store_native import Slice


@pytest.mark.parametrize(
    ("enabled", "at", "slave", "suggested"),
    [
        (True, 99, 1, 1),
        (True, 100, 1, 0),
        (True, 99, 0, 0),
        (True, None, 1, 0),
        (False, 0, 1, 0),
    ],
)
def test_who_is_further_behind_than_that_is_sent_to_a_slave(
    enabled: bool, at: int | None, slave: int, suggested: int
) -> None:
    reads = SlaveReads(enabled=enabled, behind_bytes=900, log_end=lambda: 1_000, slave=lambda: slave)
    assert reads.suggested(cast(Slice, SimpleNamespace(physical_offset=at))) == suggested


def test_by_default_far_is_40_percent_of_the_memory() -> None:
    far = 1 << 50
    reads = SlaveReads(enabled=True, behind_bytes=0, log_end=lambda: far, slave=lambda: 1)
    assert reads.suggested(cast(Slice, SimpleNamespace(physical_offset=far - (1 << 20)))) == 0
    assert reads.suggested(cast(Slice, SimpleNamespace(physical_offset=0))) == 1
