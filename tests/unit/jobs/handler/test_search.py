"""The search for what a handler fails for, call by call: what is tried, in which order, and when it ends.

A slice is written start+rows. What a handler is called with while nothing has worked is the smallest and the
largest slice in turn; once something has worked it goes through the batch in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest

from jobs.handler.narrowing import Call, Found, Said, Search, first_slices

VERDICTS, RETRY_ALL, RAISED = Said.VERDICTS, Said.RETRY_ALL, Said.RAISED
Rows = range
Says = Callable[[Rows], Said | tuple[Said, Collection[int]]]


@dataclass
class Handler:
    """A handler by what a call with some rows comes to; a result is the call's number."""

    says: Says
    calls: list[str] = field(default_factory=list)

    def __call__(self, start: int, rows: int) -> Call[str]:
        said = self.says(range(start, start + rows))
        self.calls.append(f"{start}+{rows}")
        outcome, retried = said if isinstance(said, tuple) else (said, ())
        return Call(self.calls[-1], outcome, retried)


def fails_for(*bad: int) -> Says:
    return lambda rows: RAISED if set(bad) & set(rows) else VERDICTS


def always(said: Said) -> Says:
    return lambda rows: said


def search(
    says: Says,
    rows: int,
    *,
    each: int = 0,
    isolated: Collection[int] = (),
    last_chance: Collection[int] = (),
    cannot_return: Collection[int] = (),
) -> tuple[str, list[Found[str]]]:
    """Searches a batch, in slices of so many rows at first; returns the calls and what was found."""
    alone = [row in isolated for row in range(rows)]
    slices = first_slices([False] * rows, alone)
    if each:
        slices = [
            (at, min(each, start + size - at))
            for start, size in slices
            for at in range(start, start + size, each)
        ]
    handler = Handler(says)
    made = Search(handler, last_chance=last_chance.__contains__, cannot_return=cannot_return.__contains__)
    found = made.run(slices, alone)
    covered = [row for part in found for row in range(part.start, part.start + part.rows)]
    assert covered == list(range(rows))
    return " ".join(handler.calls), found


def good(start: int, rows: int, by: str = "", at: int = 0) -> Found[str]:
    return Found(start, rows, by or f"{start}+{rows}", at)


def bad(row: int) -> Found[str]:
    return Found(row, 1, f"{row}+1", isolated=True)


def in_company(start: int, rows: int, by: str) -> Found[str]:
    return Found(start, rows, by, in_company=True)


def test_a_handler_that_works_is_called_once_for_each_slice() -> None:
    assert search(always(VERDICTS), 8) == ("0+8", [good(0, 8)])
    assert search(always(VERDICTS), 6, each=2) == ("0+2 2+2 4+2", [good(0, 2), good(2, 2), good(4, 2)])


def test_what_it_fails_for_is_found_by_halves() -> None:
    calls, found = search(fails_for(5), 8)
    assert calls == "0+8 0+4 4+4 4+2 4+1 5+1 6+2"
    assert found == [good(0, 4), good(4, 1), bad(5), good(6, 2)]


def test_until_something_works_the_smallest_and_the_largest_slice_are_tried_in_turn() -> None:
    calls, found = search(fails_for(0, 6), 7)
    assert calls == "0+7 3+4 3+2 5+2 5+1 6+1 0+3 0+1 1+2"
    assert found == [bad(0), good(1, 2), good(3, 2), good(5, 1), bad(6)]
    calls, found = search(always(RAISED), 4)
    assert calls == "0+4 0+2 0+1 2+2 2+1 3+1 1+1"
    assert found == [bad(0), bad(1), bad(2), bad(3)]


def test_of_slices_of_one_size_the_one_found_last_is_tried_first_and_of_the_first_ones_the_first() -> None:
    calls, _ = search(always(RAISED), 4, each=2)
    assert calls == "0+2 2+2 2+1 3+1 0+1 1+1"


def test_a_row_that_failed_by_itself_before_has_its_call_first() -> None:
    calls, found = search(fails_for(1, 4), 6, isolated=(1, 3))
    assert calls == "1+1 3+1 0+1 2+1 4+2 4+1 5+1"
    assert found == [good(0, 1), bad(1), good(2, 1), good(3, 1), bad(4), good(5, 1)]


def test_what_such_a_call_says_of_the_handler_counts_but_not_against_the_others() -> None:
    # It works: the others are gone through in order, and no number of failures ends the search.
    calls, _ = search(fails_for(*range(1, 64)), 64, each=1, isolated=(0,))
    assert calls == " ".join(f"{row}+1" for row in range(64))
    # It raises for as many as there are: the others are tried as if there were none of them.
    known = range(60)
    calls, found = search(always(RAISED), 64, isolated=known)
    assert calls.split()[60:] == ["60+4", "60+2", "60+1", "62+2", "62+1", "63+1", "61+1"]
    assert found == [bad(row) for row in range(64)]
    # Neither RETRY for all is a sign that it works.
    calls, found = search(lambda rows: RETRY_ALL if rows[0] == 7 else RAISED, 8, isolated=(7,))
    assert calls.split()[:4] == ["7+1", "0+7", "3+4", "3+2"]
    assert found[-1] == good(7, 1)


def test_one_retry_for_all_is_taken_as_it_is_and_is_no_sign_that_it_works() -> None:
    assert search(always(RETRY_ALL), 8) == ("0+8", [good(0, 8)])
    # So many may fail, of which each is one: the rest has one call, and there is nothing left to give up.
    calls, found = search(always(RETRY_ALL), 64, each=1)
    assert calls == " ".join([*(f"{row}+1" for row in range(36)), "36+28"])
    assert found == [*(good(row, 1) for row in range(36)), good(36, 28)]


def test_while_everything_fails_the_calls_end_and_what_is_left_failed_in_company() -> None:
    calls, found = search(always(RAISED), 64, each=1)
    assert calls == " ".join([*(f"{row}+1" for row in range(36)), "36+28"])
    assert found == [*(bad(row) for row in range(36)), in_company(36, 28, "36+28")]
    calls, found = search(always(RAISED), 16)
    assert len(calls.split()) == 28, "as failures_allowed says"
    assert found[4:6] == [in_company(4, 1, "4+2"), in_company(5, 1, "4+2")]
    assert [part for part in found if not part.isolated] == [*found[4:6], in_company(7, 1, "6+2")]


def test_what_no_call_has_had_yet_has_one_in_as_few_calls_as_there_are_gaps() -> None:
    calls, found = search(always(RAISED), 64, each=1, isolated=(50,))
    assert calls.split()[:2] == ["50+1", "0+1"]
    assert calls.split()[-2:] == ["32+18", "51+13"]
    assert found[-3:] == [in_company(32, 18, "32+18"), bad(50), in_company(51, 13, "51+13")]


def test_a_last_row_that_no_call_has_had_fails_by_itself() -> None:
    calls, found = search(always(RAISED), 37, each=1, isolated=())
    assert calls.split()[-2:] == ["31+1", "32+5"]
    calls, found = search(always(RAISED), 33, each=1)
    assert calls.split()[-2:] == ["31+1", "32+1"]
    assert found[-1] == bad(32)


def test_once_one_of_these_calls_works_the_search_goes_on() -> None:
    calls, found = search(lambda rows: VERDICTS if rows[0] == 36 else RAISED, 64, each=1)
    assert calls.split()[-1] == "36+28"
    assert found[-1] == good(36, 28)
    # What failed in the calls before it is looked at again: the handler works.
    says: Says = lambda rows: VERDICTS if rows[0] > 55 or rows == range(41, 48) else RAISED  # noqa: E731
    calls, found = search(says, 64, each=1, isolated=(40, 55))
    assert calls.split()[33:47] == [
        *("31+1", "32+8", "41+14", "56+8", "41+14", "41+7"),
        *("48+7", "48+3", "48+1", "49+2", "49+1", "50+1", "51+4", "51+2"),
    ]
    assert not [part for part in found if part.in_company]
    assert good(41, 7) in found


def test_a_row_at_its_last_chance_is_given_up_by_a_call_of_its_own_only() -> None:
    def says(rows: Rows) -> tuple[Said, list[int]]:
        return VERDICTS, [at for at, row in enumerate(rows) if row in (1, 3, 4, 7)]

    assert search(says, 8) == ("0+8", [good(0, 8)])
    calls, found = search(says, 8, last_chance=(0, 1, 4, 7))
    assert calls == "0+8 1+1 4+1 7+1"
    whole = "0+8"
    assert found == [
        good(0, 1, whole),
        good(1, 1),
        good(2, 2, whole, at=2),
        good(4, 1),
        good(5, 2, whole, at=5),
        good(7, 1),
    ]
    calls, found = search(says, 8, each=2, last_chance=(7,))
    assert calls == "0+2 2+2 4+2 6+2 7+1"
    calls, found = search(says, 8, each=4, last_chance=(4,))
    assert calls == "0+4 4+4 4+1"
    assert found == [good(0, 4), good(4, 1), good(5, 3, "4+4", at=1)]


def test_rows_at_their_last_chance_that_never_had_their_call_come_again() -> None:
    says: Says = lambda rows: (RETRY_ALL, range(len(rows)))  # noqa: E731
    calls, found = search(says, 64, each=1, last_chance=(40,))
    assert calls.split()[-1] == "36+28"
    assert found[-3:] == [good(36, 4, "36+28"), in_company(40, 1, "36+28"), good(41, 23, "36+28", at=5)]


def test_a_row_that_cannot_come_back_is_called_alone_when_the_rest_is_given_up() -> None:
    calls, found = search(always(RAISED), 64, each=1, cannot_return=(3, 36, 40, 41, 63))
    assert calls.split()[-5:] == ["36+28", "36+1", "40+1", "41+1", "63+1"]
    assert found[36:] == [
        bad(36),
        in_company(37, 3, "36+28"),
        bad(40),
        bad(41),
        in_company(42, 21, "36+28"),
        bad(63),
    ]
    calls, found = search(
        lambda rows: VERDICTS if rows == range(40, 41) else RAISED, 64, each=1, cannot_return=(40,)
    )
    assert calls.split()[-2:] == ["36+28", "40+1"]
    assert found[36:] == [in_company(36, 4, "36+28"), good(40, 1), in_company(41, 23, "36+28")]


@pytest.mark.parametrize(
    ("again", "isolated", "slices"),
    [
        ("....", "....", [(0, 4)]),
        (".", ".", [(0, 1)]),
        ("..xx.", ".....", [(0, 2), (2, 2), (4, 1)]),
        ("....", ".x..", [(0, 1), (1, 1), (2, 2)]),
        ("....", "x..x", [(0, 1), (1, 2), (3, 1)]),
        ("....", ".xx.", [(0, 1), (1, 1), (2, 1), (3, 1)]),
        ("x" * 40, "." * 40, [(0, 16), (16, 16), (32, 8)]),
        ("." * 40, "." * 40, [(0, 40)]),
        ("..." + "x" * 17, "." * 20, [(0, 3), (3, 16), (19, 1)]),
        ("x" * 20, "..x" + "." * 17, [(0, 2), (2, 1), (3, 16), (19, 1)]),
    ],
)
def test_rows_that_come_again_begin_in_small_slices_and_those_that_failed_alone_alone(
    again: str, isolated: str, slices: list[tuple[int, int]]
) -> None:
    assert first_slices([c == "x" for c in again], [c == "x" for c in isolated]) == slices
