"""A group goes on behind a truncated log once: the range is in the ledger before anything of it is handled.

Contract: it ends, with what to do, unless it is to go on and the range is known; a range is noted once,
however often it is found and whatever became of the commit's answer; the retry topic is left alone; what of
the range has no delivery is lost, by the names of before.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from delta_tables.consumer_offsets import QueueProgress
from delta_tables.data_losses import LostRange
from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.maintenance import maintain
from delta_tables.table import Table
from delta_tables.truncated_ranges import TRUNCATED_RANGES
from jobs.group.given_again import GivenAgain, LedgerNames
from jobs.group.older_checkpoint import refuse_overtaken
from jobs.group.progress_report import by_names
from jobs.group.truncated_log import TruncatedLog, ledger_names
from jobs.runtime.checkpoint import StreamCheckpoint
from store_native.errors import InvalidRequest
from structured_streaming.offsets import MessageQueue
from structured_streaming.source.data_loss import Loss, truncated, truncated_somewhere
from tests.support.ledger_rows import append, delivery, path_ledger

Q = MessageQueue("orders", "broker-a", 0)
AGAIN = MessageQueue("orders", "broker-a@65", 0)
RETRIES = MessageQueue("%RETRY%g", "broker-a", 0)


class AnswerLostError(Exception):
    """What became of a commit is not known."""


class FailingLedger(PathLedger):
    """A ledger whose next commit fails before it, or after it."""

    fails: str | None = None

    def append_arrow(self, rows: pa.Table, table: Table, *, app_id: str, version: int) -> bool:
        when, self.fails = self.fails, None
        if when == "before":
            raise AnswerLostError
        done = super().append_arrow(rows, table, app_id=app_id, version=version)
        if when == "after":
            raise AnswerLostError
        return done


def log_of(ledger: PathLedger, *, goes_on: bool = True) -> TruncatedLog:
    log = TruncatedLog(ledger, "g", cast(Any, None), goes_on=goes_on)
    log.begin()
    return log


def found(start: int = 2, end: int = 5, queue: MessageQueue = Q, given_in: int = 65, before: int = 1) -> Loss:
    return truncated(queue, start, end, before, given_in, given_in)


def ranges(ledger: PathLedger) -> list[tuple[Any, ...]]:
    rows = LedgerReader(ledger.directory).sql("SELECT * FROM truncated_ranges ORDER BY epoch").to_pylist()
    return [tuple(row[name] for name in TRUNCATED_RANGES.column_names[1:-1]) for row in rows]


def test_a_group_that_does_not_go_on_ends_with_the_range_and_what_to_do(tmp_path: Path) -> None:
    log = log_of(path_ledger(tmp_path), goes_on=False)
    assert log.go_on([]) == []
    with pytest.raises(InvalidRequest, match=r"offsets \[2, 5\).*Go on with --on-data-loss record, or use"):
        log.go_on([found()])
    assert log.go_on([found(queue=RETRIES)]) == []
    assert not path_ledger(tmp_path).exists(TRUNCATED_RANGES)


def test_where_it_is_not_known_from_which_offset_on_it_ends_whatever_it_is_told(tmp_path: Path) -> None:
    log = log_of(path_ledger(tmp_path))
    unknown = truncated_somewhere(Q, 5, 7, 1, 65, 6)
    with pytest.raises(InvalidRequest, match=r"retention has taken where.*gone. Use another group or ledger"):
        log.go_on([found(), unknown])
    assert log.names == LedgerNames()


def test_a_range_is_noted_once_and_known_to_the_next_start(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    log = log_of(ledger)
    lost = [LostRange("orders", "broker-a", 0, 2, 5, "truncated log")]
    assert log.go_on([found(), found(queue=RETRIES)]) == lost
    assert log.go_on([found(3, 4)]) == [LostRange("orders", "broker-a", 0, 3, 4, "truncated log")]
    following = log_of(ledger)
    assert following.names == log.names == LedgerNames((GivenAgain(Q, 2, 5, 65),))
    assert following.go_on([found()]) == lost
    assert ranges(ledger) == [("orders", "broker-a", 0, 2, 4, 1, 65, "broker-a@65")]
    assert ledger_names(ledger, "other") == LedgerNames()
    assert maintain(ledger, keep_days=1)[0].rows_deleted == 0, "it names messages of the log"
    assert len(ranges(ledger)) == 1


def test_what_a_batch_read_and_what_was_before_it_is_one_range(tmp_path: Path) -> None:
    log = log_of(path_ledger(tmp_path))
    log.go_on([found(2, 5), found(5, 7)])
    assert log.names == LedgerNames((GivenAgain(Q, 2, 7, 65),))


def test_a_further_promotion_takes_the_names_of_the_one_before(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    log = log_of(ledger)
    log.go_on([found()])
    lost = log.go_on([found(3, 6, given_in=66, before=65)])
    assert lost == [
        LostRange("orders", "broker-a@65", 0, 3, 5, "truncated log"),
        LostRange("orders", "broker-a", 0, 5, 6, "truncated log"),
    ]
    assert [row[-1] for row in ranges(ledger)] == ["broker-a@65", "broker-a@66"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_fails_or_whose_answer_is_lost_ends_the_group_and_the_next_start_goes_on(
    tmp_path: Path, when: str
) -> None:
    ledger = FailingLedger(path_ledger(tmp_path).directory)
    log = log_of(ledger)
    ledger.fails = when
    with pytest.raises(AnswerLostError):
        log.go_on([found()])
    assert log.names == LedgerNames()
    following = log_of(ledger)
    following.go_on([found()])
    assert following.names == LedgerNames((GivenAgain(Q, 2, 5, 65),))
    assert len(ranges(ledger)) == 1


NAMES = LedgerNames((GivenAgain(Q, 2, 5, 65),))
_QUEUE = attrgetter("topic", "broker_name", "queue_id")


def test_a_queue_of_which_a_batch_covers_nothing_is_not_told() -> None:
    assert not QueueProgress("orders", "broker-a", 0, 5, 5, 9).has_moved
    assert QueueProgress("orders", "broker-a", 0, 5, 6, 9).has_moved


@pytest.mark.parametrize(
    ("begin", "upto", "told"),
    [
        (2, 4, [(AGAIN, 2, 4, 9), (Q, 5, 5, 5)]),
        (2, 5, [(AGAIN, 2, 5, 5), (Q, 5, 5, 9)]),
        (2, 8, [(AGAIN, 2, 5, 5), (Q, 5, 8, 9)]),
        (5, 8, [(Q, 5, 8, 9)]),
    ],
)
def test_what_is_left_of_a_queue_is_told_by_the_name_that_is_reached(
    begin: int, upto: int, told: list[Any]
) -> None:
    rows = by_names(QueueProgress("orders", "broker-a", 0, begin, upto, 9, "id", 65), NAMES)
    said = [(MessageQueue(*_QUEUE(row)), row.begin_offset, row.next_offset, row.max_offset) for row in rows]
    assert said == told
    assert {(row.topic_id, row.epoch) for row in rows} == {("id", 65)}


@pytest.mark.parametrize(
    ("reached", "handled", "overtaken"),
    [
        (2, ("broker-a", 4), False),
        (3, ("broker-a@65", 2), False),
        (3, ("broker-a@65", 3), True),
        (3, ("broker-a", 5), True),
        (6, ("broker-a@65", 4), False),
        (6, ("broker-a", 6), True),
    ],
)
def test_a_checkpoint_is_overtaken_by_rows_behind_it_of_the_messages_that_are_there_now(
    tmp_path: Path, reached: int, handled: tuple[str, int], overtaken: bool
) -> None:
    ledger = path_ledger(tmp_path / "ledger")
    name, offset = handled
    append(
        ledger, DELIVERIES, [delivery(offset, broker_name=name, source_broker_name=name, query_id="other")]
    )
    checkpoint = StreamCheckpoint(tmp_path / "checkpoint")

    def look() -> None:
        refuse_overtaken(checkpoint, ledger, "g", "q", {Q: reached}, cast(Any, None), NAMES)

    if overtaken:
        with pytest.raises(InvalidRequest, match=f"offset {offset} from another one"):
            look()
    else:
        look()
