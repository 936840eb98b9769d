"""What people see is aligned and short."""

from __future__ import annotations

from typing import Any

from lakemq.client import ReceivedMessage
from lakemq.terminal import output


def received(body: bytes, **fields: object) -> ReceivedMessage:
    known = {
        "message_id": "M",
        "offset_message_id": "O",
        "topic": "t",
        "broker_name": "b",
        "queue_id": 2,
        "queue_offset": 7,
        "store_timestamp": 1_795_219_200_005,
    }
    return ReceivedMessage(**{**known, **fields, "body": body})  # type: ignore[arg-type]  # values vary by field


def test_numbers_stand_right_and_text_left() -> None:
    text = output.table(["topic", "queues"], [["orders", 4], ["a", 16]])
    assert text.splitlines() == ["topic   queues", "orders       4", "a           16"]


def test_table_without_rows_shows_its_columns() -> None:
    assert output.table(["topic"], []) == "topic"


def test_long_values_are_cut() -> None:
    assert output.table(["x"], [["y" * 100]], widest=10).splitlines()[1] == "yyyyyyy..."


def test_nothing_and_truth_have_words() -> None:
    values: tuple[Any, ...] = (None, "", [], {}, True, False, 0)
    assert [output.cell(value) for value in values] == [
        "-",
        "-",
        "-",
        "-",
        "yes",
        "no",
        "0",
    ]


def test_time_is_utc_with_milliseconds() -> None:
    assert output.moment(1_795_219_200_005) == "2026-11-21T00:00:00.005Z"


def test_message_is_one_line_whatever_is_in_it() -> None:
    message = received(b"a\n\x1b[2Jb\xc2\x85c", tags="T", keys=("k\r1", "k2"))
    line = output.message_line(message)
    assert line == "2026-11-21T00:00:00.005Z  q2@7  T  k\\r1 k2  a\\n\x1b[2Jb\\x85c"
    assert len(output.table(["attributes"], [[{"a": "x\ny"}]]).splitlines()) == 2


def test_body_that_is_not_text_is_measured() -> None:
    assert output.message_line(received(b"\xff\xfe")).endswith(
        "(2 bytes, not text; --format json has them in base64)"
    )


def test_card_shows_the_body_last_and_whole() -> None:
    card = output.message_card(received(b'{"a":\n 1}'))
    assert card.endswith('\n\n{"a":\n 1}')
    assert "store_timestamp    2026-11-21T00:00:00.005Z" in card
