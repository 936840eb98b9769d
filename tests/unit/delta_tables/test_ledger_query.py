"""A query of a ledger in a catalog carries the tables and views it names, and no others."""

from __future__ import annotations

import re

import pytest

from delta_tables.ledger import ledger_at
from delta_tables.ledger_query import with_views

LEDGER = ledger_at("main.ledger")


@pytest.mark.parametrize(
    ("text", "carried"),
    [
        ("SELECT 1 AS one", []),
        ("SELECT max(batch_id) FROM deliveries", ["deliveries"]),
        ("SELECT * FROM pending_retries", ["deliveries", "pending_retries"]),
        ("SELECT * FROM deliveries_by_key WHERE key = '17'", ["deliveries", "deliveries_by_key"]),
        ("SELECT * FROM pending_dead_letters", ["deliveries", "dead_letters", "pending_dead_letters"]),
        (
            "SELECT * FROM delivery_gaps",
            ["deliveries", "consumer_offsets", "data_losses", "delivery_gaps"],
        ),
    ],
)
def test_question_carries_what_it_names_and_what_that_is_built_on(text: str, carried: list[str]) -> None:
    asked = with_views(LEDGER, text)
    assert asked.endswith(text)
    assert re.findall(r"(?:^WITH|,) (\w+) AS \(", asked) == carried
    for table in set(carried) & {"deliveries", "dead_letters"}:
        assert f"{table} AS (SELECT * FROM main.ledger.{table})" in asked
