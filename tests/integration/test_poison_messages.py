"""Messages that no handler of text and JSON can read, between those that it can.

Contract: each is one dead letter and one message of %DLQ% with its body; what is healthy is handled at its
first attempt, no batch later.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from tests.integration.test_handler_host import rows
from tests.support.broker_process import BrokerProcess
from tests.support.measured_handler import as_measured
from tests.support.spark_streams import TRIGGER

HEALTHY = 200
MANY = {f"p{n}": "x" * 890 for n in range(10)}
POISON = {
    "not-JSON": Message(b"{", keys=["not-JSON"]),
    "not-UTF-8": Message(b'{"x": "\xff\xfe"}', keys=["not-UTF-8"]),
    "cut-UTF-8": Message('{"x": "ä'.encode()[:-1], keys=["cut-UTF-8"]),
    "4-MiB": Message(bytes(4 << 20), keys=["4-MiB"]),
    "9-KB-of-properties": Message(b"[]", keys=["9-KB-of-properties"], properties=MANY),
}
HANDLER = """
def handle(message):
    message.json()["x"]
"""


def test_each_is_one_dead_letter_and_holds_up_no_other(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    client = broker.client()
    client.put_topic("poison", read_queue_nums=1, write_queue_nums=1)
    for number, message in enumerate(POISON.values()):
        client.send_many("poison", [Message(f'{{"x": {number}}}')] * (HEALTHY // len(POISON)))
        client.send_many("poison", [message])
    (tmp_path / "poisoned.py").write_text(HANDLER)
    settings = ConsumeSettings(
        group="p",
        topics=("poison",),
        handler=HandlerTarget("poisoned:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=broker.endpoint,
        start="earliest",
        max_reconsume_times=1,
        retry_delays="1s",
        trigger=TRIGGER,
        until_idle_s=0.5,
    )
    # One batch is meant to have them all: the first of a handler that nobody measured has few.
    consume(as_measured(settings, rows=1000), lambda: spark)

    def said(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in rows(tmp_path / "ledger", text)]

    counted = said(
        "SELECT attempt, verdict, count(*) FROM deliveries GROUP BY attempt, verdict ORDER BY 1, 2"
    )
    assert counted == [(1, "ACK", HEALTHY), (1, "RETRY", len(POISON)), (2, "DEAD", len(POISON))]
    # One batch had them all: whatever the poison, no healthy message came a batch later.
    assert said("SELECT DISTINCT batch_id FROM deliveries WHERE attempt = 1") == [(0,)]
    letters = said("SELECT keys[1], body FROM dead_letters")
    assert Counter(key for key, _ in letters) == dict.fromkeys(POISON, 1)
    assert dict(letters) == {key: message.body for key, message in POISON.items()}
    (queue,) = client.queues("%DLQ%p")
    assert queue.max_offset == len(POISON)
    sent: list[Any] = []
    while len(sent) < len(POISON):
        pulled = client.pull("%DLQ%p", 0, len(sent)).messages
        assert pulled, "the dead letters end before their queue does"
        sent += pulled
    assert {message.keys[0]: message.body for message in sent} == dict(letters)
    assert rows(tmp_path / "ledger", "SELECT * FROM duplicate_deliveries") == []
    assert rows(tmp_path / "ledger", "SELECT * FROM delivery_gaps") == []
