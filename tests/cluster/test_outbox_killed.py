"""The driver is killed (-9) around the sending of what verdicts send: before it, after it, after its record.

Contract: each message of an acknowledged attempt is in its topic exactly once, and the ledger has one row per
attempt and one per message sent, whatever was killed. The run after the last kill is this process's own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Message
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

BATCH = 300
HANDLER = """
from lakemq.handler import Outgoing, Verdict

def handle(message):
    number = int(message.text)
    if number % 50 == 0 and message.attempt == 1:
        raise ValueError("at first")
    return Verdict.ack(send=Outgoing("invoices", {"order": number}, sharding_key=str(message.queue_id)))
"""


@dataclass(frozen=True)
class Kill:
    """Where the driver is killed: a commit by its table and number (the first sets the fence), and its side.

    Attributes:
        sent: Whether messages are in the topic then.
        recorded: Whether the ledger says so.
    """

    commit: tuple[str, str, str]
    sent: bool
    recorded: bool


OUTCOME_COMMITTED = Kill(("deliveries", "2", "after"), sent=False, recorded=False)
SENT = Kill(("sent_messages", "2", "before"), sent=True, recorded=False)
RECORDED = Kill(("sent_messages", "2", "after"), sent=True, recorded=True)  # Spark's checkpoint does not know


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param((SENT,), id="once"),
        pytest.param((OUTCOME_COMMITTED, SENT, RECORDED), id="everywhere", marks=pytest.mark.nightly),
    ],
)
def test_a_driver_killed_around_the_sending_sends_each_message_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, kills: tuple[Kill, ...]
) -> None:
    client = broker.client()
    for topic in ("orders", "invoices"):
        client.put_topic(topic, read_queue_nums=4, write_queue_nums=4)
    (tmp_path / "transform.py").write_text(HANDLER)
    ledger = tmp_path / "ledger"
    arguments = (
        *("--group", "g", "--topic", "orders", "--send-to", "invoices", "--handler", "transform:handle"),
        *("--ledger", "ledger", "--endpoint", broker.endpoint, "--from", "earliest", "--retry-delays", "1s"),
        "--available-now",
    )

    def post(first: int) -> None:
        client.send_many("orders", [Message(str(n)) for n in range(first, first + BATCH)])
        await_dispatch(client)

    def invoices() -> list[int]:
        await_dispatch(client)
        found: list[int] = []
        for queue in client.queues("invoices"):
            offset = 0
            while offset < queue.max_offset:
                pulled = client.pull("invoices", queue.queue_id, offset, max=1000)
                found += [message.json()["order"] for message in pulled.messages]
                offset = pulled.next_offset
        return found

    for number, kill in enumerate(kills):
        post(number * BATCH)
        module = ("tests.support.halted_consumer", *kill.commit)
        with ConsumerProcess(tmp_path, *arguments, halt=True, module=module) as consumer:
            consumer.halted_at()
            consumer.kill()
        recorded = LedgerReader(ledger).sql("SELECT count(*) AS n FROM sent_messages").to_pylist()[0]["n"]
        assert (len(invoices()) > 0, recorded > 0) == (kill.sent, kill.recorded)

    orders = (len(kills) + 1) * BATCH
    post(len(kills) * BATCH)
    settings = ConsumeSettings(
        group="g",
        topics=("orders",),
        handler=HandlerTarget("transform:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(ledger)),
        endpoint=broker.endpoint,
        start="earliest",
        retry_delays="1s",
        trigger="200 milliseconds",
        send_to=("invoices",),
        until_idle_s=0.5,
    )
    consume(settings, lambda: spark)

    assert Counter(invoices()) == Counter(range(orders))
    reader = LedgerReader(ledger)
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_sends", "pending_retries"):
        assert reader.sql(f"SELECT * FROM {view}").num_rows == 0, view
    key = "consumer_group, topic, broker_name, queue_id, queue_offset, attempt"
    sent = reader.sql(f"SELECT {key}, number, count(*) AS n FROM sent_messages GROUP BY {key}, number")
    assert Counter(sent.column("n").to_pylist()) == Counter({1: orders})
