"""Finding the messages that make a vectorised handler fail.

Owns the search: which slices of a batch the handler is called with, and when the search ends. Knows no
Arrow.

Invariants: every row ends in exactly one call's result, and a row is only blamed for what its own call did.
A handler that fails whatever it gets (its database is down) is not called once per row: while no call has
succeeded, the calls that fail are bounded; what is left then failed in company. Once a call has succeeded
the handler works, and the search goes on down to single rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import Generic, TypeVar

RETRY_CHUNK_ROWS = 16
"""Messages that come again are handled in calls of so many: few suffer from each other's company."""

Result = TypeVar("Result")


class Said(Enum):
    """What a call tells about the handler."""

    VERDICTS = auto()  # it works
    RETRY_ALL = auto()  # one RETRY for all it got: perhaps nothing works
    RAISED = auto()


@dataclass(frozen=True)
class Call(Generic[Result]):
    """A call and what came of it.

    Attributes:
        result: the verdicts of the slice's rows, or its failure.
        said: what it tells about the handler.
        retried: offsets within the slice of the rows whose verdict is RETRY; empty when it raised.
    """

    result: Result
    said: Said
    retried: Collection[int] = ()


@dataclass(frozen=True)
class Found(Generic[Result]):
    """The result of some consecutive rows of the batch.

    Attributes:
        start, rows: which rows of the batch.
        result: of the call that decided about them.
        at: where they begin in that call's slice.
        in_company: the call failed for them together with others; nothing is known about each.
        isolated: the handler raised in a call for this row alone.
    """

    start: int
    rows: int
    result: Result
    at: int = 0
    in_company: bool = False
    isolated: bool = False


def first_slices(again: Sequence[bool], isolated: Sequence[bool]) -> list[tuple[int, int]]:
    """Cuts a batch into the slices the search begins with.

    Args:
        again: per row, whether it was handled before: such rows come in small chunks.
        isolated: per row, whether it failed by itself before: such a row comes alone.

    Returns:
        (start, rows) of slices in order that cover the batch.
    """
    marks = [0]
    for row in range(1, len(again)):
        alone = isolated[row] or isolated[row - 1]
        if alone or again[row] != again[row - 1] or (again[row] and row - marks[-1] >= RETRY_CHUNK_ROWS):
            marks.append(row)
    return [(start, end - start) for start, end in pairwise([*marks, len(again)])]


def failures_allowed(rows: int) -> int:
    """How many calls may fail while none has succeeded."""
    return 8 + 4 * rows.bit_length()


class Search(Generic[Result]):
    """One search over one batch."""

    def __init__(
        self,
        call: Callable[[int, int], Call[Result]],
        *,
        last_chance: Callable[[int], bool],
        cannot_return: Callable[[int], bool],
    ) -> None:
        """Prepares a search.

        Args:
            call: calls the handler with rows (start, count) of the batch; does not raise.
            last_chance: whether RETRY would now mean DEAD for a row, so that the row has to fail in a
                call of its own.
            cannot_return: whether a row cannot be retried at all and must be decided about now.
        """
        self._call = call
        self._last_chance = last_chance
        self._cannot_return = cannot_return
        self._works = False
        self._failures_left = 0
        self._waiting: list[tuple[int, int, Result | None]] = []
        self._found: dict[int, Found[Result]] = {}

    def run(self, slices: Sequence[tuple[int, int]], isolated: Sequence[bool]) -> list[Found[Result]]:
        """Searches; returns results that cover all rows, in their order.

        Args:
            slices: what to begin with, see `first_slices`.
            isolated: per row, whether it failed by itself before. Such a row has its call whatever the
                handler does with the others: it is known, and their number is bounded by the search that
                found it.
        """
        for start, _ in slices:
            if isolated[start]:
                made = self._call(start, 1)
                self._works = self._works or made.said is Said.VERDICTS
                self._put(Found(start, 1, made.result, isolated=made.said is Said.RAISED))
        others = [(start, rows) for start, rows in slices if not isolated[start]]
        self._failures_left = failures_allowed(sum(rows for _, rows in others))
        self._waiting.extend((start, rows, None) for start, rows in reversed(others))
        small = True
        while self._waiting:
            if not self._works and self._failures_left <= 0:
                self._call_untried()
                if not self._works:
                    self._give_up()
                continue
            start, rows, _ = self._waiting.pop(-1 if self._works else self._probe(small))
            small = not small
            self._try(start, rows, halve=True)
        return [self._found[start] for start in sorted(self._found)]

    def _probe(self, small: bool) -> int:
        """Chooses the slice to look at while nothing has succeeded.

        In turn: for a row that fails alone the smallest, for a part that succeeds the largest.
        """
        choose = min if small else max
        return choose(reversed(range(len(self._waiting))), key=lambda at: self._waiting[at][1])

    def _try(self, start: int, rows: int, *, halve: bool) -> None:
        made = self._call(start, rows)
        if made.said is Said.VERDICTS:
            self._works = True
        else:
            self._failures_left -= 1
        if made.said is not Said.RAISED:
            self._settle(start, rows, made)
        elif rows == 1:
            self._put(Found(start, 1, made.result, isolated=True))
        elif halve:
            half = rows // 2
            self._waiting.append((start + half, rows - half, made.result))
            self._waiting.append((start, half, made.result))
        else:
            self._waiting.append((start, rows, made.result))

    def _settle(self, start: int, rows: int, made: Call[Result]) -> None:
        """Takes a call's verdicts, but for the rows that may only be given up by a call of their own."""
        alone = [at for at in sorted(made.retried) if rows > 1 and self._last_chance(start + at)]
        for begin, end in pairwise([-1, *alone, rows]):
            if end - begin > 1:
                self._put(Found(start + begin + 1, end - begin - 1, made.result, at=begin + 1))
        self._waiting.extend((start + at, 1, made.result) for at in reversed(alone))

    def _call_untried(self) -> None:
        """Gives what no call has had yet one call, so that each attempt of each row is one."""
        untried = sorted((start, rows) for start, rows, failed in self._waiting if failed is None)
        self._waiting = [entry for entry in self._waiting if entry[2] is not None]
        merged: list[tuple[int, int]] = []
        for start, rows in untried:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + rows)
            else:
                merged.append((start, rows))
        for start, rows in merged:
            self._try(start, rows, halve=False)

    def _give_up(self) -> None:
        """What is left failed in company; only a row that cannot come back is still called alone."""
        for start, rows, failed in self._waiting:
            assert failed is not None, "a slice was given up before any call had it"
            row = start
            for at in range(rows + 1):
                if at < rows and not self._cannot_return(start + at):
                    continue
                if start + at > row:
                    self._put(Found(row, start + at - row, failed, in_company=True))
                if at < rows:
                    made = self._call(start + at, 1)
                    self._put(Found(start + at, 1, made.result, isolated=made.said is Said.RAISED))
                row = start + at + 1
        self._waiting.clear()

    def _put(self, found: Found[Result]) -> None:
        assert found.start not in self._found, f"row {found.start} has two results"
        self._found[found.start] = found
