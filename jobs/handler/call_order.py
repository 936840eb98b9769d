"""Which calls of a batch follow each other.

Owns the lanes of a batch: messages that are handled one after the other, until one has to come again.

Invariants: of a lane one call is under way at most, and none follows a message that comes again. Pure.

Processes: executors, and the processes handlers are isolated in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from delta_tables.deliveries import RETRY
from jobs.handler.verdicts import NOT_CALLED, PUT_OFF, Outcome

Rows = tuple[int, ...]


@dataclass(frozen=True)
class CallOrder:
    """The lanes of a batch's rows; a row of none is not called.

    Attributes:
        lanes: rows in the order of their calls.
        given_up: rows that cannot come again: should they fail, their lane goes on.
        otherwise: the outcome of a row that is not called.
    """

    lanes: tuple[Rows, ...]
    given_up: frozenset[int] = frozenset()
    otherwise: Outcome = NOT_CALLED

    @classmethod
    def at_once(cls, rows: Iterable[int]) -> CallOrder:
        """Each row is a lane of its own; one that is not called was put off."""
        return cls(tuple((row,) for row in rows), otherwise=PUT_OFF)

    def goes_on(self, row: int, outcome: Outcome | None) -> bool:
        """Whether the lane's next row is called after this outcome (None is ACK)."""
        if outcome is None or outcome.verdict != RETRY:
            return True
        return row in self.given_up and not outcome.put_off

    def left(self, outcomes: Mapping[int, Outcome | None]) -> CallOrder:
        """What is still to be called, behind these outcomes."""
        lanes = (self._left_of(lane, outcomes) for lane in self.lanes)
        return replace(self, lanes=tuple(lane for lane in lanes if lane))

    def _left_of(self, lane: Rows, outcomes: Mapping[int, Outcome | None]) -> Rows:
        for at, row in enumerate(lane):
            if row not in outcomes:
                return lane[at:]
            if not self.goes_on(row, outcomes[row]):
                return ()
        return ()

    def without(self, rows: Collection[int]) -> CallOrder:
        """The same order, but for the lanes that one of these rows is on."""
        return replace(self, lanes=tuple(lane for lane in self.lanes if set(rows).isdisjoint(lane)))

    def before(self, rows: Collection[int]) -> CallOrder:
        """The same order, each lane only up to the first of these rows."""
        lanes = (tuple(takewhile(lambda row: row not in rows, lane)) for lane in self.lanes)
        return replace(self, lanes=tuple(lane for lane in lanes if lane))

    def only(self, rows: Collection[int]) -> CallOrder:
        """The same order of some of the rows."""
        chosen = (tuple(row for row in lane if row in rows) for lane in self.lanes)
        return replace(self, lanes=tuple(lane for lane in chosen if lane))

    def numbered(self, rows: Sequence[int]) -> CallOrder:
        """The same order where a row is known by its place among `rows`."""
        place = {row: at for at, row in enumerate(rows)}
        return replace(
            self,
            lanes=tuple(tuple(place[row] for row in lane) for lane in self.lanes),
            given_up=frozenset(place[row] for row in self.given_up if row in place),
        )

    @property
    def parks(self) -> bool:
        """Whether the lanes are an orderly group's, where what is not called waits for an earlier row."""
        return self.otherwise == NOT_CALLED

    @property
    def rows(self) -> list[int]:
        """All rows, in ascending order."""
        return sorted(row for lane in self.lanes for row in lane)

    @property
    def heads(self) -> list[int]:
        """The next row of each lane."""
        return [lane[0] for lane in self.lanes]


class Turns:
    """Says whose call is next; asked by several threads.

    Args:
        order: What is to be called.
    """

    def __init__(self, order: CallOrder) -> None:
        self._goes_on: Callable[[int, Outcome | None], bool] = order.goes_on
        self._waiting = deque(order.heads)
        self._following = {row: following for lane in order.lanes for row, following in pairwise(lane)}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self) -> int | None:
        """The next row; None when there is none, but for those behind calls under way.

        Whoever makes such a call asks again after it.
        """
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def end(self, row: int, outcome: Outcome | None) -> None:
        """Notes a row's outcome."""
        following = self._following.get(row)
        if following is not None and self._goes_on(row, outcome):
            self._waiting.append(following)
