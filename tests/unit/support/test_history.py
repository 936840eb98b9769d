"""The judge of histories finds each kind of answer no broker can have given, and nothing in a right one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.history import (
    FOR_EVER,
    Commit,
    FencedCommit,
    Grant,
    History,
    Look,
    Pull,
    Release,
    Send,
    Span,
)

A = Send(Span(0, 1), 0, "a", 0)
B = Send(Span(2, 3), 0, "b", 1)
UNKNOWN = Send(Span(2, FOR_EVER), 0, "c", None)
BOTH = Pull(Span(4, 5), 0, 0, ((0, "a"), (1, "b")), 2, 2)
ONE = Commit(Span(0, 1), 0, 1)
TWO = Commit(Span(2, 3), 0, 2)
FIRST = Grant(Span(0, 1), "x", 1, 10)
SECOND = Grant(Span(11, 12), "y", 2, 20)


def right() -> History:
    return History(
        sends=[A, B, UNKNOWN],
        pulls=[
            BOTH,
            Pull(Span(0, 5), 0, 0, ((0, "a"),), 1, 1),
            Pull(Span(6, 7), 0, 2, ((2, "c"),), 3, 3),
            Pull(Span(6, 7), 1, 0, (), 0, 0),
        ],
        commits=[ONE, TWO],
        looks=[
            Look(Span(0, 1), 0, None),
            Look(Span(1.5, 1.6), 0, 1),
            Look(Span(2.5, 2.6), 0, 1),
            Look(Span(2.5, 2.6), 0, 2),
            Look(Span(4, 5), 0, 2),
        ],
        grants=[FIRST, replace(FIRST, span=Span(2, 3), until=12), SECOND],
    )


def test_a_right_history_has_no_problems() -> None:
    assert right().problems() == []


def test_what_got_no_answer_may_be_there_or_not() -> None:
    history = right()
    history.pulls = [BOTH]
    assert history.problems() == []


@pytest.mark.parametrize(
    ("sends", "problem"),
    [
        ([replace(B, offset=0)], "offset 0 belongs to"),
        ([replace(A, offset=3), replace(B, offset=2)], "b was sent after a was stored, and lies before it"),
    ],
)
def test_answers_of_sends_name_one_place_each_in_order(sends: list[Send], problem: str) -> None:
    kept = [send for send in (A, B) if send.body not in {one.body for one in sends}]
    assert any(problem in found for found in History(sends=[*kept, *sends]).problems())


@pytest.mark.parametrize(
    ("pull", "problem"),
    [
        (Pull(Span(4, 5), 0, 0, ((0, "a"),), 2, 2), "a pull from 0 to 2 shows [0]"),
        (Pull(Span(4, 5), 0, 0, ((0, "a"), (1, "z")), 2, 2), "z was never sent"),
        (Pull(Span(-2, -1), 0, 0, ((0, "a"),), 1, 1), "a was read before it was sent"),
        (Pull(Span(4, 5), 0, 0, ((0, "b"), (1, "a")), 2, 2), "b was stored at 1 and read at 0"),
        (Pull(Span(4, 5), 0, 0, ((0, "a"),), 1, 1), "b was answered, and a later pull ends at 1"),
        (Pull(Span(6, 7), 0, 0, ((0, "a"),), 1, 1), "the queue ended at 2, and later at 1"),
        (Pull(Span(6, 7), 0, 1, ((1, "c"),), 2, 2), "b and c were read at 1"),
        (Pull(Span(6, 7), 0, 2, ((2, "a"),), 3, 3), "body a belongs to"),
    ],
)
def test_a_pull_that_cannot_be_is_found(pull: Pull, problem: str) -> None:
    history = History(sends=[A, B, UNKNOWN], pulls=[BOTH, pull])
    assert any(problem in found for found in history.problems()), history.problems()


@pytest.mark.parametrize(
    ("look", "problem"),
    [
        (Look(Span(4, 5), 0, 7), "nobody committed 7"),
        (Look(Span(0, 1), 0, 2), "2 was read before it was committed"),
        (Look(Span(4, 5), 0, 1), "1 was read after 2 had replaced it"),
        (Look(Span(4, 5), 0, None), "None was read after 1 had replaced it"),
    ],
)
def test_an_offset_that_cannot_be_is_found(look: Look, problem: str) -> None:
    assert History(commits=[ONE, TWO], looks=[look]).problems()[0] == problem


@pytest.mark.parametrize(
    ("grant", "problem"),
    [
        (replace(SECOND, epoch=1), "x and y were granted epoch 1"),
        (replace(SECOND, epoch=0), "epoch 0 was granted after 1"),
        (replace(SECOND, span=Span(2, 3)), "y was granted the lease while x held it"),
    ],
)
def test_a_grant_that_cannot_be_is_found(grant: Grant, problem: str) -> None:
    assert problem in History(grants=[FIRST, grant]).problems()


def test_a_lease_that_was_given_back_is_free() -> None:
    early = replace(SECOND, span=Span(6, 7))
    assert History(grants=[FIRST, early], releases=[Release(5, "x")]).problems() == []
    problem = "y was granted the lease while x held it"
    for release in (Release(5, "y"), Release(-1, "x"), Release(8, "x")):
        assert History(grants=[FIRST, early], releases=[release]).problems() == [problem]


def test_a_commit_of_an_epoch_that_is_over_is_found() -> None:
    history = History(grants=[FIRST, SECOND], fenced=[FencedCommit(Span(11, 14), 1)])
    assert history.problems() == [], "it may have been taken before the other was granted"
    history.fenced = [FencedCommit(Span(13, 14), 2), FencedCommit(Span(13, 14), 1)]
    assert history.problems() == ["a commit of epoch 1 was taken after 2 was granted"]


def test_who_may_be_behind_shows_less_and_nothing_else() -> None:
    old = Pull(Span(6, 7), 0, 0, ((0, "a"),), 1, 1, may_be_behind=True)
    look = Look(Span(4, 5), 0, 1, may_be_behind=True)
    history = History(sends=[A, B], pulls=[BOTH, old], commits=[ONE, TWO], looks=[look])
    assert history.problems() == []
    history.pulls.append(Pull(Span(6, 7), 0, 0, ((0, "b"),), 1, 1, may_be_behind=True))
    history.looks.append(Look(Span(4, 5), 0, 7, may_be_behind=True))
    assert {"b was stored at 1 and read at 0", "nobody committed 7"} <= set(history.problems())


def test_a_failover_that_lost_a_message_or_moved_a_group_back_is_refused() -> None:
    """A and B were answered by a master that was killed; the promoted slave has A only."""
    lost = History(sends=[A, B], pulls=[BOTH, Pull(Span(8, 9), 0, 0, ((0, "a"),), 1, 1)])
    assert "b was answered, and a later pull ends at 1" in lost.problems()
    later = Send(Span(7, 8), 0, "d", 1)
    replaced = History(sends=[A, B, later], pulls=[BOTH, Pull(Span(8, 9), 0, 0, ((0, "a"), (1, "d")), 2, 2)])
    assert {"offset 1 belongs to ['b', 'd']", "b and d were read at 1"} <= set(replaced.problems())
    moved = History(commits=[ONE, TWO], looks=[Look(Span(8, 9), 0, 1)])
    assert moved.problems() == ["1 was read after 2 had replaced it"]
