"""What a table knows of a batch's positions: all of it, and few spans to ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from delta_tables.deliveries import DELIVERIES, DELIVERY_KEY
from delta_tables.known_keys import MOST_SPANS, Position, known_rows, spans
from tests.support.ledger_rows import append, delivery, path_ledger

NO_SESSION = cast(SparkSession, None)

POSITIONS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.just("broker-a"), st.integers(0, 9), st.integers(0, 10_000_000)
    ),
    max_size=200,
)


@given(POSITIONS, st.integers(1, 30))
def test_spans_cover_every_position_and_are_few(positions: list[Position], most: int) -> None:
    covering = spans(positions, most)
    assert len(covering) <= max(most, 2)  # one per topic at least
    for topic, _, queue_id, offset in positions:
        assert any(
            span.topic == topic and span.queue_id in (None, queue_id) and span.low <= offset <= span.high
            for span in covering
        )


def test_one_old_message_does_not_make_a_batch_cover_the_history() -> None:
    positions: list[Position] = [("t", "b", 0, offset) for offset in (3, 900_000, 900_001, 900_007)]
    covered = sum(span.high - span.low + 1 for span in spans(positions))
    assert covered == 4
    assert len(spans([("t", "b", 0, 2 * n) for n in range(100_000)])) == MOST_SPANS


def test_the_rows_of_one_group_at_some_positions_are_found(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    append(ledger, DELIVERIES, [delivery(offset) for offset in range(100)])
    append(ledger, DELIVERIES, [delivery(7, attempt=2), delivery(7, attempt=3), delivery(50, attempt=2)])
    append(ledger, DELIVERIES, [delivery(8, attempt=2, consumer_group="other")])
    append(ledger, DELIVERIES, [delivery(8, attempt=2, topic="it's \\ another")])

    def asked(*offsets: int, topic: str = "orders") -> set[tuple[object, ...]]:
        positions = [(topic, "broker-a", 0, offset) for offset in offsets]
        return known_rows(NO_SESSION, ledger, DELIVERIES, "g", positions, DELIVERY_KEY[1:], attempts_from=2)

    assert asked(7, 8) == {("orders", "broker-a", 0, 7, 2), ("orders", "broker-a", 0, 7, 3)}
    assert asked(8) == asked() == asked(7, topic="it's") == set()
    assert asked(8, topic="it's \\ another") == {("it's \\ another", "broker-a", 0, 8, 2)}
