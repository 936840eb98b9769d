"""The checker finds each kind of wrong reading, and nothing in a right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checker import Found, Report, check, identity
from tests.support.journal import Journal, Sent, read_journals

TOPIC = "orders"


def _sent() -> list[Sent]:
    return [
        Sent("w1", 0, TOPIC, ["w1-0-0"], "ok", [(0, 0, 1)]),
        Sent("w1", 1, TOPIC, ["w1-1-0", "w1-1-1", "w1-1-2"], "ok", [(0, 1, 2), (1, 0, 1)]),
        Sent("w2", 0, TOPIC, ["w2-0-0"], "failed"),
        Sent("w2", 1, TOPIC, ["w2-1-0", "w2-1-1"], "unknown"),
    ]


def _reading(unknown_stored: bool = True) -> list[Found]:
    reading = [
        Found(TOPIC, 0, 0, "w1-0-0"),
        Found(TOPIC, 0, 1, "w1-1-0"),
        Found(TOPIC, 0, 2, "w1-1-1"),
        Found(TOPIC, 1, 0, "w1-1-2"),
    ]
    if unknown_stored:
        reading += [Found(TOPIC, 1, 1, "w2-1-0"), Found(TOPIC, 1, 2, "w2-1-1")]
    return reading


def _wrong(reading: list[Found]) -> set[str]:
    report = check("test", _sent(), reading)
    return {kind for kind in Report.KINDS if getattr(report, kind)}


@pytest.mark.parametrize("unknown_stored", [True, False])
def test_right_reading_is_clean_whether_or_not_the_unknown_request_is_stored(unknown_stored: bool) -> None:
    report = check("test", _sent(), _reading(unknown_stored))
    assert report.clean, str(report)
    assert (report.acknowledged, report.unknown) == (4, 2)


def test_missing_acknowledged_message_is_lost() -> None:
    assert _wrong(_reading()[1:]) == {"lost"}


def test_missing_end_of_an_acknowledged_batch_is_lost_and_torn() -> None:
    assert _wrong([found for found in _reading(False) if found.id != "w1-1-2"]) == {"lost", "torn"}


def test_half_of_an_unknown_batch_is_torn() -> None:
    assert _wrong(_reading()[:-1]) == {"torn"}


def test_message_twice_is_duplicated() -> None:
    assert _wrong([*_reading(), Found(TOPIC, 1, 3, "w2-1-1")]) == {"duplicated"}


def test_message_nobody_sent_is_a_phantom() -> None:
    assert _wrong([*_reading(), Found(TOPIC, 0, 3, "stranger")]) == {"phantom"}


def test_refused_message_that_is_there_is_a_phantom() -> None:
    assert _wrong([*_reading(), Found(TOPIC, 0, 3, "w2-0-0")]) == {"phantom"}


def test_message_behind_a_later_one_of_its_writer_is_reordered() -> None:
    sent = [Sent("w1", 0, TOPIC, ["a"], "ok"), Sent("w1", 1, TOPIC, ["b"], "ok")]
    report = check("test", sent, [Found(TOPIC, 0, 0, "b"), Found(TOPIC, 0, 1, "a")])
    assert report.reordered == ["a in orders/0"]


def test_order_between_two_writers_is_free() -> None:
    sent = [Sent("w1", 0, TOPIC, ["a"], "ok"), Sent("w2", 0, TOPIC, ["b"], "ok")]
    assert check("test", sent, [Found(TOPIC, 0, 0, "b"), Found(TOPIC, 0, 1, "a")]).clean


def test_message_at_another_offset_than_acknowledged_is_misplaced() -> None:
    reading = [found for found in _reading(False) if found.id != "w1-0-0"]
    assert _wrong([*reading, Found(TOPIC, 2, 0, "w1-0-0")]) == {"misplaced"}


def test_swapped_messages_inside_a_batch_are_misplaced_and_reordered() -> None:
    reading = _reading(False)
    reading[1] = Found(TOPIC, 0, 2, "w1-1-0")
    reading[2] = Found(TOPIC, 0, 1, "w1-1-1")
    assert _wrong(reading) == {"misplaced", "reordered"}


def test_missing_queue_offset_is_a_hole() -> None:
    reading = [*_reading(False), Found(TOPIC, 1, 2, "w2-1-0"), Found(TOPIC, 1, 3, "w2-1-1")]
    assert _wrong(reading) == {"holes"}


def test_two_messages_at_one_queue_offset_are_a_hole() -> None:
    reading = [*_reading(False), Found(TOPIC, 1, 0, "w2-1-0"), Found(TOPIC, 1, 1, "w2-1-1")]
    assert _wrong(reading) == {"holes"}


def test_identity_is_the_first_word_of_a_body() -> None:
    assert identity(b"w1-0-0 padding padding") == identity("w1-0-0") == "w1-0-0"


def test_journal_counts_a_request_without_an_answer_as_unknown(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "w1")
    journal.answered(journal.sending(TOPIC, ["a"]), "ok", [(2, 7, 1)])
    journal.sending(TOPIC, ["b", "c"])
    journal.close()
    again = Journal(tmp_path, "w1")
    again.answered(again.sending(TOPIC, ["d"]), "failed")
    again.close()
    assert read_journals(tmp_path) == [
        Sent("w1", 0, TOPIC, ["a"], "ok", [(2, 7, 1)]),
        Sent("w1", 1, TOPIC, ["b", "c"], "unknown"),
        Sent("w1", 2, TOPIC, ["d"], "failed"),
    ]
