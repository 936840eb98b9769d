"""A group goes on behind what is lost only where positions still mean the same messages."""

from __future__ import annotations

import pytest

from jobs.loss_record import refuse_other_losses
from store_native.errors import InvalidRequest
from structured_streaming.offsets import MessageQueue, Offsets

Q = MessageQueue("orders", "broker-a", 0)
BEGIN = Offsets(2, {"orders": "a"}, {Q: 5})


@pytest.mark.parametrize("end", [Offsets(2, {"orders": "a"}, {Q: 9}), Offsets(3, {"orders": ""}, {Q: 5})])
def test_positions_that_moved_on_are_good(end: Offsets) -> None:
    refuse_other_losses(BEGIN, end)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (Offsets(2, {"orders": "b"}, {Q: 9}), "created again"),
        (Offsets(2, {"orders": "a"}, {Q: 3}), "put back"),
        (Offsets(1, {"orders": "a"}, {Q: 9}), "put back"),
    ],
)
def test_positions_that_would_be_given_twice_are_refused(end: Offsets, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        refuse_other_losses(BEGIN, end)
