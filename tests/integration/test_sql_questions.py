"""docs/sql.md: each of its statements, out of the document, on the ledger of a real group.

Contract: every statement gives the rows it should, in `lakemq sql`'s engine and in Spark SQL; none is left
out. What is expected is worked out in Python, from the tables' rows.
"""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from delta_tables.views import register_views
from jobs.archive import ArchiveSettings, archive
from jobs.consume import consume
from jobs.dlq.choice import DeadLetterChoice
from jobs.dlq.discard import discard
from jobs.dlq.replay import Replay
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.damaged_record import damage
from tests.support.dispatch_barrier import await_dispatch
from tests.support.spark_streams import TRIGGER

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
QUESTION = re.compile(r"^### (\d+)\. ([^\n]+)\n\n```sql\n(.*?)```\n(?=\S)", re.MULTILINE | re.DOTALL)
BEGIN, THEN = "2026-11-21 14:00:00Z", "2026-11-21 14:03:00Z"
"""The document's times; the ledger's own take their place."""

FIRST, LAST, LOST = 10, 26, 24
"""Orders: the first, the last, and the one that the store damages; order n is at offset n - FIRST."""
LATER = range(22, LAST + 1)
USED_UP = "attempts used up (max reconsume times 1)"

HANDLERS = """
from lakemq.handler import Outgoing, Verdict

def charge(message):
    number = message.json()["id"]
    if number == 13 and message.attempt == 1:
        raise ConnectionError("bank away")
    if number == 17:
        raise TimeoutError("no answer")
    if number in (18, 19):
        return Verdict.dead("negative amount")
    if number == 20:
        return Verdict.dead("test order")

def relent(message):
    if message.json()["id"] == 26:
        raise ConnectionError("bank away")

def ship(message):
    if message.json()["id"] == 17:
        return Verdict.ack(send=Outgoing("parcels", "of order 17"))
"""

Row = dict[str, Any]


def message_id(order: int) -> str:
    return f"F4C247935DC9426604FC6337000000{order:02}"


@dataclass(frozen=True)
class Ledger:
    """The ledger, its rows, and the moments at which the first run began and had ended."""

    directory: Path
    began: datetime
    ended: datetime

    def rows(self, table: str, **fields: Any) -> list[Row]:
        """Rows of a table with these values, by time and position."""
        found: list[Row] = LedgerReader(self.directory).sql(f"SELECT * FROM {table}").to_pylist()
        chosen = [row for row in found if all(row[name] == value for name, value in fields.items())]
        return sorted(chosen, key=lambda row: (_time(row), row.get("queue_offset", 0), row.get("attempt", 0)))

    def one(self, table: str, **fields: Any) -> Row:
        """The one row of a table with these values."""
        (row,) = self.rows(table, **fields)
        return row

    def attempt(self, order: int, attempt: int, group: str = "billing") -> Row:
        """One attempt of a group at an order."""
        return self.one("deliveries", message_id=message_id(order), attempt=attempt, consumer_group=group)

    def billing(self, *verdicts: str) -> list[Row]:
        """The attempts of the group, of these verdicts or of all, by time."""
        rows = self.rows("deliveries", consumer_group="billing")
        return [row for row in rows if not verdicts or row["verdict"] in verdicts]

    def statement(self, text: str) -> str:
        """A statement of the document with this ledger's times."""
        for written, there in ((BEGIN, self.began), (THEN, self.ended)):
            text = text.replace(written, there.strftime("%Y-%m-%d %H:%M:%S.%fZ"))
        return text


def _time(row: Row) -> datetime:
    times = ("finished_at", "store_timestamp", "last_attempt_at", "replayed_at", "recorded_at", "sent_at")
    at: datetime = next(row[name] for name in times if name in row)
    return at


@pytest.fixture(scope="module")
def ledger(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    home = tmp_path_factory.mktemp("questions")
    (home / "question_handlers.py").write_text(HANDLERS)
    broker = BrokerProcess(home / "broker")
    try:
        yield lived_through(spark, broker, home)
    finally:
        broker.close()


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession, ledger: Ledger) -> SparkSession:
    """A session that knows the ledger's tables and views."""
    register_views(spark, str(ledger.directory))
    return spark


def lived_through(spark: SparkSession, broker: BrokerProcess, home: Path) -> Ledger:
    """Runs two groups, with all that can become of a message."""
    location = ledger_at(str(home / "ledger"))

    def settings(group: str, handler: str, **changes: Any) -> ConsumeSettings:
        values: dict[str, Any] = {
            "group": group,
            "topics": ("orders",),
            "handler": HandlerTarget(f"question_handlers:{handler}", "auto", (str(home),)),
            "ledger": location,
            "endpoint": broker.endpoint,
            "start": "earliest",
            "max_reconsume_times": 1,
            "available_now": True,
        }
        return ConsumeSettings(**(values | changes))

    with broker.client() as client:
        client.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
        client.put_topic("parcels", read_queue_nums=1, write_queue_nums=1)
        client.send_many("orders", [order(number) for number in range(FIRST, LATER[0])])
        await_dispatch(client)
        began = datetime.now(UTC)
        until_idle = {"available_now": False, "until_idle_s": 0.5, "trigger": TRIGGER}
        consume(settings("billing", "charge", retry_delays="1s", **until_idle), lambda: spark)
        ended = datetime.now(UTC)
        consume(settings("shipping", "ship", send_to=("parcels",)), lambda: spark)

        ledger = str(location)
        replayed = Replay(DeadLetterChoice(ledger, "billing", "error_type = 'TimeoutError'")).send(client)
        assert (replayed.sent, replayed.refused) == (1, [])
        _, discarded = discard(DeadLetterChoice(ledger, "billing", "reason = 'test order'"), "a test")
        assert discarded == 1

        client.send_many("orders", [order(number) for number in LATER])
        await_dispatch(client)

    broker.stop()
    damage(broker.store_path, "orders", LOST - FIRST)
    broker.start()
    kept = ArchiveSettings(
        ("orders",), location, endpoint=broker.endpoint, trigger="availableNow", on_data_loss="skip"
    )
    archive(kept, lambda: spark)
    again = settings("billing", "relent", retry_delays="2h", on_data_loss="record")
    consume(again, lambda: spark)
    return Ledger(home / "ledger", began, ended)


def order(number: int) -> Message:
    body = {"id": number, "note": "x" * 200}
    return Message(body, tags="created", keys=[str(number)], message_id=message_id(number))


def why(row: Row) -> Any:
    return row["reason"] if row["error_text"] is None else row["error_text"]


def operator() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def trace_of_order_17(ledger: Ledger) -> list[tuple[Any, ...]]:
    stored = ledger.one("messages", message_id=message_id(17))["store_timestamp"]
    first, second, third = (ledger.attempt(17, attempt) for attempt in (1, 2, 3))
    shipped = ledger.attempt(17, 1, "shipping")
    sent = ledger.one("sent_messages")
    replayed = ledger.one("replays", action="REPLAY")["replayed_at"]
    trace = [
        (stored, "STORED", None, 0, None, None, None),
        (first["finished_at"], "ATTEMPT", "billing", 1, "RETRY", "no answer", None),
        (second["finished_at"], "ATTEMPT", "billing", 2, "DEAD", "no answer", None),
        (second["finished_at"], "DEAD_LETTER", "billing", 2, None, "no answer", None),
        (shipped["finished_at"], "ATTEMPT", "shipping", 1, "ACK", None, None),
        (sent["sent_at"], "SENT", "shipping", 1, None, None, None),
        (replayed, "REPLAY", "billing", 2, None, None, operator()),
        (third["finished_at"], "ATTEMPT", "billing", 3, "ACK", None, None),
    ]
    return sorted(trace, key=lambda row: row[0])  # two groups and their outbox go on beside each other


def attempts_at_order_17(ledger: Ledger) -> list[tuple[Any, ...]]:
    wanted = [
        ("billing", 1, "RETRY", "no answer"),
        ("billing", 2, "DEAD", "no answer"),
        ("shipping", 1, "ACK", None),
        ("billing", 3, "ACK", None),
    ]
    return [
        (ledger.attempt(17, attempt, group)["finished_at"], group, message_id(17), attempt, *outcome)
        for group, attempt, *outcome in wanted
    ]


def handled_by_then(ledger: Ledger) -> list[tuple[Any, ...]]:
    names = ("finished_at", "consumer_group", "topic", "message_id", "attempt", "verdict")
    first_run = [row for row in ledger.billing() if ledger.began <= row["finished_at"] < ledger.ended]
    assert len(first_run) == 12 + 2
    return [tuple(row[name] for name in names) for row in first_run]


def groups_of_order_17(ledger: Ledger) -> list[tuple[Any, ...]]:
    first, last = ledger.attempt(17, 1), ledger.attempt(17, 3)
    shipped = ledger.attempt(17, 1, "shipping")
    return [
        ("billing", "ACK", 3, first["started_at"], last["finished_at"]),
        ("shipping", "ACK", 1, shipped["started_at"], shipped["finished_at"]),
    ]


def at_offset_7(ledger: Ledger) -> list[tuple[Any, ...]]:
    stored = ledger.one("messages", message_id=message_id(17))["store_timestamp"]
    body = json.dumps({"id": 17, "note": "x" * 200}, separators=(",", ":"))
    return [(message_id(17), "17", "created", stored, body)]


def lags(ledger: Ledger) -> list[tuple[Any, ...]]:
    reports = ledger.rows("consumer_offsets")
    newest = {(row["consumer_group"], row["topic"]): row["recorded_at"] for row in reports}
    assert sorted(newest) == [("billing", "%RETRY%billing"), ("billing", "orders"), ("shipping", "orders")]
    return [(group, topic, 0, newest[group, topic]) for group, topic in sorted(newest)]


def minutes(ledger: Ledger) -> list[tuple[Any, ...]]:
    minute = {"second": 0, "microsecond": 0}
    attempts = Counter(row["finished_at"].replace(**minute) for row in ledger.billing())
    failed = Counter(row["finished_at"].replace(**minute) for row in ledger.billing("RETRY", "DEAD"))
    assert (attempts.total(), failed.total()) == (19, 7)
    return [(at, attempts[at], failed[at]) for at in sorted(attempts)]


def longest_calls(ledger: Ledger) -> list[tuple[Any, ...]]:
    calls = [
        (row["finished_at"] - row["started_at"], row["message_id"], row["attempt"], row["verdict"])
        for row in ledger.billing()
    ]
    return sorted(calls, key=lambda call: (-call[0], *call[1:3]))[:3]


def done_by_then(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [("orders", 8, 2, 4, handled_by_then(ledger)[-1][0])]


def failed(ledger: Ledger) -> list[tuple[Any, ...]]:
    rows = ledger.billing("RETRY", "DEAD")
    said = Counter((int(row["keys"][0]), row["attempt"], row["verdict"], why(row)) for row in rows)
    assert said == Counter(
        [
            (13, 1, "RETRY", "bank away"),
            (17, 1, "RETRY", "no answer"),
            (17, 2, "DEAD", "no answer"),
            (18, 1, "DEAD", "negative amount"),
            (19, 1, "DEAD", "negative amount"),
            (20, 1, "DEAD", "test order"),
            (26, 1, "RETRY", "bank away"),
        ]
    )
    names = ("attempt", "verdict", "error_type")
    return [(r["finished_at"], *r["keys"], *(r[name] for name in names), why(r)) for r in rows]


def waiting(ledger: Ledger) -> list[tuple[Any, ...]]:
    due = ledger.attempt(26, 1)["finished_at"] + timedelta(hours=2)
    return [(due, message_id(26), 1, "ConnectionError", "bank away")]


def well_at_last(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [
        (ledger.attempt(number, attempt)["finished_at"], message_id(number), attempt)
        for number, attempt in ((13, 2), (17, 3))
    ]


def causes(ledger: Ledger) -> list[tuple[Any, ...]]:
    ends = [ledger.attempt(19, 1), ledger.attempt(18, 1), ledger.attempt(17, 2), ledger.attempt(20, 1)]
    negative, other, used_up, test = (row["finished_at"] for row in ends)
    return [
        ("negative amount", None, 2, 1, max(negative, other), None),
        (USED_UP, "TimeoutError", 1, 2, used_up, "no answer"),
        ("test order", None, 1, 1, test, None),
    ]


def open_letters(ledger: Ledger) -> list[tuple[Any, ...]]:
    letters = [(ledger.attempt(number, 1)["finished_at"], message_id(number)) for number in (18, 19)]
    return [(*letter, 1, "negative amount") for letter in sorted(letters)]


def replays(ledger: Ledger) -> list[tuple[Any, ...]]:
    row = ledger.one("replays", action="REPLAY")
    return [(row["replayed_at"], operator(), message_id(17), 3, "ACK")]


def discards(ledger: Ledger) -> list[tuple[Any, ...]]:
    row = ledger.one("replays", action="DISCARD")
    return [(row["replayed_at"], operator(), message_id(20), "a test")]


def losses(ledger: Ledger) -> list[tuple[Any, ...]]:
    at = LOST - FIRST
    return [("orders", "broker-a", 0, at, at, 1, 1, "damaged in the store")]


def caused(ledger: Ledger) -> list[tuple[Any, ...]]:
    row = ledger.one("sent_messages")
    (sent,) = ledger.attempt(17, 1, "shipping")["outbox"]
    assert (row["sent_message_id"], row["number"]) == (sent["message_id"], 1)
    return [(row["sent_at"], "shipping", "parcels", sent["message_id"], None, None)]


EXPECTED: dict[int, Callable[[Ledger], list[tuple[Any, ...]]]] = {
    1: trace_of_order_17,
    2: attempts_at_order_17,
    3: handled_by_then,
    4: groups_of_order_17,
    5: at_offset_7,
    6: lags,
    7: minutes,
    8: longest_calls,
    9: done_by_then,
    10: lambda ledger: [(socket.gethostname(), 19, 7)],
    11: failed,
    12: lambda ledger: [
        ("ConnectionError", "bank away", 2, 2),
        (None, "negative amount", 2, 2),
        ("TimeoutError", "no answer", 2, 1),
        (None, "test order", 1, 1),
    ],
    13: waiting,
    14: well_at_last,
    15: causes,
    16: open_letters,
    17: replays,
    18: discards,
    19: lambda ledger: [(1, 1, 0)],
    20: losses,
    21: lambda ledger: [("orders", "broker-a", 0, LOST - FIRST, LOST - FIRST)],
    22: caused,
}


def questions() -> dict[int, tuple[str, str]]:
    found = QUESTION.findall(DOCUMENT.read_text(encoding="utf-8"))
    return {int(number): (title, statement) for number, title, statement in found}


def test_every_statement_of_the_document_is_a_question_with_an_answer_here() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    asked = questions()
    assert list(asked) == list(EXPECTED) == list(range(1, 23))
    assert text.count("```sql") == text.count("\n### ") == len(asked)
    assert all(title.endswith("?") for title, _ in asked.values())


@pytest.mark.parametrize("number", EXPECTED)
def test_a_question_is_answered_as_the_document_says(
    in_spark: SparkSession, ledger: Ledger, number: int
) -> None:
    _, statement = questions()[number]
    text = ledger.statement(statement)
    wanted = EXPECTED[number](ledger)
    assert wanted
    found = LedgerReader(ledger.directory).sql(text)
    assert tuples(found) == wanted
    with_spark = in_spark.sql(text).toArrow()
    assert with_spark.column_names == found.column_names
    assert tuples(with_spark) == wanted


def tuples(answer: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer.to_pylist()]
