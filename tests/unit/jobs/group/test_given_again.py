"""Offsets that are given again have a name for each message, and tell how far a group has come.

Contract: whatever is promoted, and however far a group comes between: no two messages have one name and
offset in its ledger, the names cover what is read without a hole, and how far the group is follows from the
ledger's rows alone.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.group.given_again import (
    NO_END,
    GivenAgain,
    LedgerNames,
    Part,
    at_brokers,
    broker_of,
    is_renamed,
)
from structured_streaming.offsets import MessageQueue

Q = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
AGAIN = MessageQueue("orders", "broker-a@65", 0)
NAMES = LedgerNames((GivenAgain(Q, 2, 5, 65),))


def test_a_range_is_cut_at_the_borders_of_what_was_given_again() -> None:
    assert NAMES.parts(Q, 0, 9) == [Part(Q, 0, 2), Part(AGAIN, 2, 5), Part(Q, 5, 9)]
    assert NAMES.parts(Q, 3, 4) == [Part(AGAIN, 3, 4)]
    assert NAMES.parts(Q, 5, 5) == NAMES.parts(Q, 3, 3) == NAMES.parts(OTHER, 3, 3) == []
    assert NAMES.parts(OTHER, 0, 9) == [Part(OTHER, 0, 9)]


def test_what_epochs_give_again_side_by_side_is_one_part_each() -> None:
    names = LedgerNames((GivenAgain(Q, 2, 5, 65), GivenAgain(Q, 4, 7, 65), GivenAgain(Q, 3, 4, 66)))
    named = [(part.queue.broker_name, *part[1:]) for part in names.parts(Q, 2, 8)]
    assert named == [
        *[("broker-a@65", 2, 3), ("broker-a@66", 3, 4), ("broker-a@65", 4, 7), ("broker-a", 7, 8)],
    ]


def test_names_of_before_an_epoch_are_without_it() -> None:
    names = LedgerNames((GivenAgain(Q, 2, 5, 65), GivenAgain(Q, 3, 4, 66)))
    assert names.before(66) == NAMES
    assert names.before(65) == LedgerNames()


def test_what_was_planned_before_an_epoch_has_none_of_its_names() -> None:
    """A batch of the earlier epoch that is run again is reported as of the messages that are gone."""
    assert NAMES.as_of({"broker-a": 1}) == LedgerNames()
    assert NAMES.as_of({"broker-a": 65}) == NAMES.as_of({"broker-a": 66}) == NAMES
    assert NAMES.as_of({"broker-b": 1}) == NAMES


def test_messages_are_renamed_by_their_offsets() -> None:
    batch = pa.RecordBatch.from_pydict({"broker_name": ["broker-a"] * 4, "queue_offset": [1, 2, 4, 6]})
    named = NAMES.of(Q, batch)
    assert named.column("broker_name").to_pylist() == ["broker-a", "broker-a@65", "broker-a@65", "broker-a"]
    assert named.schema == batch.schema
    dense = batch.cast(pa.schema([("broker_name", pa.large_string()), ("queue_offset", pa.int64())]))
    assert NAMES.of(Q, dense).schema == dense.schema
    assert NAMES.of(OTHER, batch) is batch
    behind = batch.slice(3)
    assert NAMES.of(Q, behind) is behind
    light = batch.select(["queue_offset"])
    assert NAMES.of(Q, light) is light
    assert NAMES.of(Q, batch.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    ("handled", "at"),
    [
        ({Q: 5}, 2),
        ({Q: 5, AGAIN: 3}, 3),
        ({Q: 5, AGAIN: 5}, 5),
        ({Q: 8, AGAIN: 5}, 8),
        ({}, 2),
    ],
)
def test_how_far_a_group_is_follows_from_the_ledgers_rows(handled: dict[MessageQueue, int], at: int) -> None:
    assert NAMES.reached({**handled, OTHER: 7}) == {Q: at, OTHER: 7}


def test_of_two_ranges_of_one_epoch_the_first_is_where_it_went_on() -> None:
    names = LedgerNames((GivenAgain(Q, 4, 7, 65), GivenAgain(Q, 2, 5, 65)))
    assert names.reached({Q: 7}) == {Q: 2}


def test_positions_are_those_of_the_brokers_queues() -> None:
    assert at_brokers([(Q, 5), (AGAIN, 3), (OTHER, 4)]) == {Q: 3, OTHER: 4}
    assert at_brokers([(AGAIN, 3), (Q, 5)]) == {Q: 3}
    assert broker_of("broker-a@65") == broker_of("broker-a") == "broker-a"
    assert is_renamed(AGAIN)
    assert not is_renamed(Q)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6))
def test_no_two_messages_have_one_name_whatever_is_promoted(history: list[tuple[int, int]]) -> None:
    """Each step: the group reads some, a promotion takes some back (or nothing), it goes on."""
    names = LedgerNames()
    rows: dict[tuple[str, int], int] = {}  # broker_name and offset -> which message
    handled: dict[MessageQueue, int] = {}
    log: list[int] = []  # the message at each offset
    at = made = 0
    for epoch, (reads, takes_back) in enumerate(history, start=2):
        while len(log) < at + reads:
            made += 1
            log.append(made)
        for part in names.parts(Q, at, at + reads):
            for offset in range(part.start, part.end):
                key = (part.queue.broker_name, offset)
                assert key not in rows
                rows[key] = log[offset]
            handled[part.queue] = max(part.end, handled.get(part.queue, 0))
        at += reads
        assert names.reached(handled).get(Q, 0) == at
        common = max(0, at - takes_back)
        del log[common:]
        if common < at:
            names = LedgerNames((*names.ranges, GivenAgain(Q, common, at, epoch)))
            at = common
            assert names.reached(handled)[Q] == at
    assert names.parts(Q, 0, NO_END)[-1].end == NO_END
