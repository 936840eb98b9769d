"""Rows of verdicts in rows of `deliveries`: all of a verdict's, or none and a reason."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.user_tables.columns import TableColumns
from jobs.group.addressing import Acceptance
from jobs.group.carried import Carriers
from jobs.group.outcomes import OutcomeTask
from jobs.handler.loader import HandlerTarget
from lakemq.handler import DeliveredMessage, Outgoing, TableRow, Verdict
from tests.support.outcome_rows import POLICY, SCHEMA, message

COLUMNS = [("order", "long", False), ("amount", "double", True)]
INVOICES = TableColumns.of(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": nullable, "metadata": {}}
                for name, kind, nullable in COLUMNS
            ],
        }
    )
)
MAY = Carriers(Acceptance(frozenset(["copies"])), {"invoices": INVOICES})


def write(message: DeliveredMessage) -> Verdict:
    said = json.loads(message.body)
    rows = [TableRow(table, values) for table, values in said["rows"]]
    return Verdict.ack(send=[Outgoing(topic, "x") for topic in said.get("send", [])], rows=rows)


WRITE = HandlerTarget(f"{__name__}:write")


def of(*bodies: Any, may: Carriers = MAY) -> list[dict[str, Any]]:
    task = OutcomeTask("g", WRITE, POLICY, "concurrent", "query-1", 5, may_carry=may)
    given = [message(offset, body) for offset, body in enumerate(bodies)]
    return [
        row for made in task(iter([pa.RecordBatch.from_pylist(given, SCHEMA)])) for row in made.to_pylist()
    ]


def test_rows_stand_in_the_row_of_the_outcome_beside_its_messages() -> None:
    first, second = ["invoices", {"order": 17, "amount": 9.5}], ["invoices", {"order": 18}]
    row, other = of({"rows": [first, second], "send": ["copies"]}, {"rows": []})
    assert (row["verdict"], row["sends"], row["writes"]) == ("ACK", 1, 2)
    assert row["table_rows"] == [
        {"table_name": "invoices", "row_json": '{"order":17,"amount":9.5}'},
        {"table_name": "invoices", "row_json": '{"order":18}'},
    ]
    assert (other["verdict"], other["writes"], other["table_rows"]) == ("ACK", None, None)


@pytest.mark.parametrize(
    ("rows", "send", "why"),
    [
        ([["audit", {}]], [], "the group writes to invoices, not to 'audit': name it with --write-to"),
        (
            [["invoices", {"order": 1}], ["invoices", {}]],
            [],
            "row 2, for invoices: order: it must not be null",
        ),
        ([["invoices", {"order": "1"}]], ["copies"], "row 1, for invoices: order: a whole number, not str"),
        ([["invoices", {"order": 1}]], ["nowhere"], "the group sends to copies, not to 'nowhere'"),
    ],
)
def test_a_verdict_with_one_thing_that_is_not_taken_comes_again_and_carries_nothing(
    rows: Any, send: Any, why: str
) -> None:
    row, good = of({"rows": rows, "send": send}, {"rows": [["invoices", {"order": 2}]]})
    assert row["verdict"] == "RETRY"
    assert why in row["reason"]
    assert row["outbox"] is row["table_rows"] is row["sends"] is row["writes"] is None
    assert (good["verdict"], good["writes"]) == ("ACK", 1)


def test_a_reason_is_no_longer_than_any() -> None:
    (row,) = of({"rows": [["invoices", {"x" * 1_000_000: 1}]]})
    assert len(row["reason"]) < 10_000


def test_a_group_without_tables_says_so() -> None:
    (row,) = of({"rows": [["invoices", {"order": 1}]]}, may=Carriers())
    assert row["reason"] == "the group writes to no table, not to 'invoices': name it with --write-to"
