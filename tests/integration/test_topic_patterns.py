"""A group of a pattern: topics come while it runs and while it does not, and are read from the first message.

Contract: each message of a topic whose whole name matches has its row, wherever the group was when the topic
was made; other topics, and other groups' retries, have none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from lakemq.cli.app import main
from store_native.names import retry_topic
from tests.support.broker_process import BrokerProcess
from tests.support.consume_steps import consume_while
from tests.support.dispatch_barrier import await_dispatch
from tests.support.waiting import wait_until

HANDLERS = """
def handle(message):
    if message.text.endswith("again") and message.attempt == 1:
        raise ValueError("not yet")
"""


def send(broker: BrokerProcess, topic: str, *texts: str) -> None:
    with broker.client() as client:
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
        client.send_many(topic, [Message(text) for text in texts])
        await_dispatch(client)


def test_topics_that_come_are_read_from_their_first_message(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "pattern_handlers.py").write_text(HANDLERS)
    ledger = tmp_path / "ledger"
    given: dict[str, Any] = {
        "group": "all-orders",
        "topics": (),
        "topic_pattern": "orders-[a-z]+|returns",
        "handler": HandlerTarget("pattern_handlers:handle", "auto", (str(tmp_path),)),
        "ledger": ledger_at(str(ledger)),
        "endpoint": broker.endpoint,
        "retry_delays": "1s",
    }

    def handled() -> list[tuple[Any, ...]]:
        found = LedgerReader(ledger).sql("SELECT topic, queue_offset, attempt, verdict FROM deliveries")
        return sorted(tuple(row.values()) for row in found.to_pylist())

    send(broker, "orders-eu", "before the group")
    send(broker, "orders-eu2", "of no such name")
    send(broker, retry_topic("all"), "another group's")

    def steps() -> None:
        send(broker, "orders-eu", "while it runs")
        send(broker, "orders-us", "first", "again")
        expected = [("orders-eu", 1, 1, "ACK"), ("orders-us", 0, 1, "ACK")]
        expected += [("orders-us", 1, 1, "RETRY"), ("orders-us", 1, 2, "ACK")]
        wait_until(lambda: handled() == expected, 120, lambda: str(handled()))

    consume_while(ConsumeSettings(**given), spark, steps)
    before = handled()

    send(broker, "returns", "while it does not run")
    consume(ConsumeSettings(**given, available_now=True), lambda: spark)
    assert handled() == [*before, ("returns", 0, 1, "ACK")]

    send(broker, "orders-asia", "another")
    consume(ConsumeSettings(**given, until_idle_s=1.0), lambda: spark)
    assert handled() == sorted([*before, ("orders-asia", 0, 1, "ACK"), ("returns", 0, 1, "ACK")])
    for view in ("duplicate_deliveries", "delivery_gaps"):
        assert LedgerReader(ledger).sql(f"SELECT * FROM {view}").num_rows == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topic-pattern", "orders-.*", "--tags", "A | B"], "--tags: "),
        (["--topic-pattern", "orders(.*"], "--topic-pattern is no regular expression of Python"),
        (["--topic-pattern", "orders-.*", "--topic", "orders"], "not allowed with argument"),
        ([], "one of the arguments --topic --topic-pattern is required"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_session_starts(
    shared_broker: BrokerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pattern_refusals.py").write_text(HANDLERS)
    where = ["--endpoint", shared_broker.endpoint, "--ledger", str(tmp_path / "ledger")]
    given = ["consume", "--group", "refused", "--handler", "pattern_refusals:handle", *where, *options]
    assert main(given) == 2
    assert said in capsys.readouterr().err
