"""A group of a released version: what it consumed, and how a later version goes on with it.

Owns the group's settings and its handler, which never change: a golden ledger is held against them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from tests.support.spark_streams import TRIGGER

TOPIC: Final = "orders"
GROUP: Final = "shop"
FIRST: Final = 20
"""Messages of the first run: 0 and 10 are retried once and given up, 5 and 15 given up at once."""

# Small files, and what is in them never grows old.
BROKER_ARGUMENTS: Final = (
    *("--store.commitlog_file_size", str(8 << 20), "--store.index_slots", "1000"),
    *("--store.index_entries", "4000", "--store.retention_hours", "878400"),
)

_HANDLER: Final = """
from lakemq.handler import Verdict


def handle(message):
    number = int(message.body)
    if number % 10 == 0:
        raise ValueError(f"{number} fails")
    if number % 5 == 0:
        return Verdict.dead("five")
"""


def post(client: Client, numbers: range) -> None:
    """Sends a message a number."""
    lines = (f'{{"body":"{n}","keys":["K{n}"],"tags":"A","queue_id":{n % 2}}}' for n in numbers)
    client.send_ndjson(TOPIC, "\n".join(lines).encode())


def group_settings(directory: Path, endpoint: str) -> ConsumeSettings:
    """What `lakemq consume` is given; the handler is written beside the ledger."""
    (directory / "golden_handler.py").write_text(_HANDLER)
    return ConsumeSettings(
        group=GROUP,
        topics=(TOPIC,),
        handler=HandlerTarget("golden_handler:handle", "auto", (str(directory),)),
        ledger=ledger_at(str(directory / "ledger")),
        endpoint=endpoint,
        start="earliest",
        max_reconsume_times=1,
        retry_delays="1s",
        trigger=TRIGGER,
        until_idle_s=0.5,
    )


def deliveries(directory: Path) -> list[dict[str, Any]]:
    """The ledger's rows in the order of their keys, but for times and what names a process."""
    found = LedgerReader(str(directory / "ledger")).sql(
        "SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, verdict, "
        "message_id, keys, source_topic, error_text FROM deliveries "
        "ORDER BY topic, queue_id, queue_offset, attempt"
    )
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows
