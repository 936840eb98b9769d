"""What a handler receives, and what it may answer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakemq.handler import Verdict, is_vectorised, vectorised


def test_a_vectorised_handler_is_recognised_by_mark_or_annotation() -> None:
    @vectorised
    def marked(batch: Any) -> None: ...

    def annotated(batch: pa.RecordBatch) -> None: ...

    def row(message: Any) -> None: ...

    assert [is_vectorised(f) for f in (marked, annotated, row)] == [True, True, False]


@pytest.mark.parametrize("level", [0, -1, True])
def test_a_delay_level_starts_at_one(level: int) -> None:
    with pytest.raises(ValueError, match="levels start at 1"):
        Verdict.retry(level)


def test_a_verdict_that_sends_nothing_is_an_acknowledgement() -> None:
    assert Verdict.ack(send=None) == Verdict.ack(send=()) == Verdict.ack() == Verdict.ACK
