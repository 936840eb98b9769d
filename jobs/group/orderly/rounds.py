"""The further starts of an orderly group's query in a run that ends by itself.

Owns whether the query is started once more: a start sees the wake-up that was sent before it, and none that
its batches ask for.

Invariants: a run ends. Its starts read the topics up to where they ended when it began, so that what can go
on is bounded; where starts come to nothing, the third one in a row is the last.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.group.orderly.orderly_group import OrderlyGroup
from store_native.errors import Unavailable

MOST_IN_VAIN = 3
"""So many starts in a row may let no parked message go on: a wake-up may be a moment on its way."""


def further_starts(lanes: OrderlyGroup) -> Iterator[None]:
    """Yields before each further start; asked again once that one's batches are done.

    Args:
        lanes: the group's.
    """
    in_vain = 0
    while lanes.can_go_on and in_vain < MOST_IN_VAIN:
        before = lanes.gone_on
        yield
        in_vain = 0 if lanes.gone_on > before else in_vain + 1


def check_done(lanes: OrderlyGroup) -> None:
    """Looks for parked messages whose turn it is, at the end of a run.

    Raises:
        Unavailable: there are some.
    """
    if lanes.can_go_on:
        why = lanes.refusal or "their batch did not come"
        raise Unavailable(
            "SERVICE_NOT_AVAILABLE",
            f"the group has handled what was there but parked messages whose turn it is, which a later run "
            f"goes on with: {why}",
        )
