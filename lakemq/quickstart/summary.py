"""The ledger's answers as a person reads them: verdicts, a dead letter's story, a flight's history.

Owns the wording of the quick start's last sections; reads through sql_queries.py.
"""

from __future__ import annotations

from lakemq.client import Client
from lakemq.quickstart.report import Report
from lakemq.quickstart.sql_queries import Row, SqlQueries
from lakemq.terminal import output
from store_native.names import dlq_topic

_BODY_SHOWN = 160


def outcome(queries: SqlQueries, report: Report, endpoint: str, group: str) -> str:
    """Queries the ledger and returns the sections about what happened."""
    key = queries.example_key()
    letter = queries.dead_letter(key)
    of_key = f" of {key}" if key is not None else ""
    sections = {"Deliveries by verdict": _verdicts(queries.verdicts())}
    if letter is not None:
        kept = _kept(endpoint, group, letter)
        sections["The story of one dead letter"] = _story(letter, queries.attempts(letter), kept)
    sections[f"Five rows of delivery_history{of_key}"] = _history(queries.history(key))
    sections["Gaps and duplicates"] = (
        f"delivery_gaps: {report.gaps} missing   duplicate_deliveries: {report.duplicates}"
        f"   neither acknowledged nor dead: {report.unfinished}"
    )
    return "\n".join(f"\n{title}\n{_indented(text)}" for title, text in sections.items())


def _verdicts(rows: list[Row]) -> str:
    columns = ["attempt", "verdict", "deliveries"]
    return output.table(columns, [[row[name] for name in columns] for row in rows])


def _kept(endpoint: str, group: str, letter: Row) -> str:
    """Asks the broker where the dead letter is kept now."""
    with Client(endpoint) as client:
        found = client.query(dlq_topic(group), letter["message_id"])
    return ", ".join(f"{m.topic} q{m.queue_id}@{m.queue_offset}" for m in found) or "not found"


def _story(letter: Row, attempts: list[Row], kept: str) -> str:
    body = (letter["body"] or b"").decode("utf-8", "replace")
    head = {
        "message": letter["message_id"],
        "from": f"{letter['topic']} q{letter['queue_id']}@{letter['queue_offset']}",
        "keys": letter["keys"],
        "tags": letter["tags"],
        "body": body if len(body) <= _BODY_SHOWN else body[:_BODY_SHOWN] + "...",
        "reason": f"{letter['reason']} (after {letter['attempts']} attempts)",
        "kept in": kept,
    }
    columns = ["attempt", "verdict", "read from", "started", "why"]
    rows = [
        [
            row["attempt"],
            row["verdict"],
            f"{row['source_topic']} q{row['source_queue_id']}@{row['source_queue_offset']}",
            row["started_at"],
            row["why"],
        ]
        for row in attempts
    ]
    return f"{output.fields(head)}\n\n{output.table(columns, rows)}"


def _history(rows: list[Row]) -> str:
    columns = ["queue", "offset", "state", "attempts", "verdicts", "first started"]
    return output.table(
        columns,
        [
            [
                row["queue_id"],
                row["queue_offset"],
                row["state"],
                row["attempt_count"],
                " ".join(attempt["verdict"] for attempt in row["attempts"] or ()),
                row["first_started_at"],
            ]
            for row in rows
        ],
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
