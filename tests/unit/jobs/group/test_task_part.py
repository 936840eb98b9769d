"""Parts of a task's messages, and where lanes stand at their begin."""

from __future__ import annotations

import pytest

from jobs.group.parted_batch import cut_at

A, B, C, D = (("orders", "broker-a", 0, offset, 1) for offset in range(4))


@pytest.mark.parametrize(
    ("alone", "pieces"),
    [
        ((), [[A, B, C, D]]),
        ((B,), [[A], [B], [C, D]]),
        ((A, D), [[A], [B, C], [D]]),
        ((B, C), [[A], [B], [C], [D]]),
        ((A, B, C, D), [[A], [B], [C], [D]]),
    ],
)
def test_messages_that_a_worker_dies_of_stand_alone_and_all_keep_their_order(
    alone: tuple[tuple[str, str, int, int, int], ...],
    pieces: list[list[tuple[str, str, int, int, int]]],
) -> None:
    assert cut_at([A, B, C, D], alone) == pieces
    assert cut_at([], alone) == []
