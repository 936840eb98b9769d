"""Rows for a ledger, written with the tables' own schemas: for tests of views and readers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from delta_tables.consumer_offsets import CONSUMER_OFFSETS, QueueProgress, rows
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.replays import REPLAYS
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.table import Table

START = datetime(2026, 11, 21, 8, tzinfo=UTC)


def delivery(offset: int, attempt: int = 1, verdict: str = "ACK", **fields: Any) -> dict[str, Any]:
    """One row of deliveries on topic `orders`, queue 0; a retry was read from the retry topic."""
    at = START + timedelta(seconds=60 * attempt + offset)
    row: dict[str, Any] = {
        "consumer_group": "g",
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "queue_offset": offset,
        "attempt": attempt,
        "verdict": verdict,
        "message_id": f"ID{offset}",
        "keys": [f"K{offset}", "all"],
        "tags": "A",
        "started_at": at,
        "finished_at": at + timedelta(milliseconds=5),
        "source_topic": "orders" if attempt == 1 else "%RETRY%g",
        "source_queue_id": 0,
        "source_queue_offset": offset,
        "query_id": "q",
        "batch_id": 0,
    }
    if verdict == "RETRY":
        row["next_attempt_at"] = at + timedelta(seconds=10)
        row["error_type"], row["error_text"] = "ValueError", "broken"
    return row | fields


def stored(offset: int, reconsume_times: int = 0, **fields: Any) -> dict[str, Any]:
    """One row of messages, stored a second before its attempt of `delivery` begins."""
    row: dict[str, Any] = {
        "topic": "orders" if reconsume_times == 0 else "%RETRY%g",
        "broker_name": "broker-a",
        "queue_id": 0,
        "queue_offset": offset,
        "message_id": f"ID{offset}",
        "keys": [f"K{offset}", "all"],
        "tags": "A",
        "store_timestamp": START + timedelta(seconds=60 * (reconsume_times + 1) + offset - 1),
        "reconsume_times": reconsume_times,
    }
    return row | fields


def dead_letter(offset: int, attempts: int, **fields: Any) -> dict[str, Any]:
    """One row of dead_letters, of the delivery with this number of attempts."""
    given_up = delivery(offset, attempts, "DEAD")
    row = {name: given_up[name] for name in DEAD_LETTERS.column_names if name in given_up}
    row |= {"attempts": attempts, "reason": "no", "last_attempt_at": given_up["finished_at"]}
    return row | fields


def replayed(offset: int, attempts: int, action: str | None = "REPLAY", **fields: Any) -> dict[str, Any]:
    """One row of replays, a second after the dead letter's last attempt."""
    letter = dead_letter(offset, attempts)
    row = {name: letter[name] for name in REPLAYS.column_names if name in letter and name != "reason"}
    row |= {"replay_id": "r", "predicate": "true", "operator": "anna@host", "action": action}
    return row | {"replayed_at": letter["last_attempt_at"] + timedelta(seconds=1)} | fields


def of_send(table: Table, offset: int, number: int = 1, **fields: Any) -> dict[str, Any]:
    """One row of sent_messages, refused_sends or discarded_sends, each a second later."""
    acknowledged = delivery(offset)
    row = {name: acknowledged[name] for name in table.column_names if name in acknowledged}
    row |= {"number": number, "sent_topic": "invoices", "sent_message_id": f"S{offset}{number}"}
    later = {"sent_at": 1, "refused_at": 2, "discarded_at": 3}
    at = {
        name: acknowledged["finished_at"] + timedelta(seconds=seconds)
        for name, seconds in later.items()
        if name in table.column_names
    }
    return row | at | fields


def skipped(offset: int, attempts: int, **fields: Any) -> dict[str, Any]:
    """One row of skipped_messages, a second after so many attempts of `delivery`."""
    last = delivery(offset, attempts)
    row = {name: last[name] for name in SKIPPED_MESSAGES.column_names if name in last}
    row |= {"attempts": attempts, "skip_id": "s", "operator": "anna@host", "reason": "no use"}
    return row | {"skipped_at": last["finished_at"] + timedelta(seconds=1)} | fields


def append(ledger: PathLedger, table: Table, rows_: list[dict[str, Any]]) -> None:
    """Appends rows as one commit."""
    ledger.create(table)
    write_deltalake(
        str(ledger.path(table)), pa.Table.from_pylist(rows_, schema=table.arrow_schema), mode="append"
    )


def report(
    ledger: PathLedger,
    begin: int,
    end: int,
    *,
    batch_id: int = 0,
    group: str = "g",
    subscription: str = "*",
    **queue: Any,
) -> None:
    """Appends the report of a batch to consumer_offsets."""
    position: dict[str, Any] = {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "max_offset": end,
    } | queue
    progress = QueueProgress(begin_offset=begin, next_offset=end, **position)
    table = rows(
        [progress],
        consumer_group=group,
        subscription=subscription,
        query_id="q",
        batch_id=batch_id,
        recorded_at=START + timedelta(seconds=10 * batch_id),
    )
    append(ledger, CONSUMER_OFFSETS, table.to_pylist())


def path_ledger(path: Path) -> PathLedger:
    """The location of a ledger in a test's directory."""
    return PathLedger(path.absolute())


def query(ledger: PathLedger, text: str) -> list[dict[str, Any]]:
    """Returns the rows of a question that is asked through deltalake."""
    rows: list[dict[str, Any]] = LedgerReader(str(ledger)).sql(text).to_pylist()
    return rows
