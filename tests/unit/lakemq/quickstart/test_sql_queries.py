"""What is put into SQL stays a literal."""

from __future__ import annotations

from lakemq.quickstart.sql_queries import literal


def test_sql_literal_cannot_be_left_early() -> None:
    assert literal("it's; --") == "'it''s; --'"
