"""The driver is killed between the ledger's commit and Spark's, again and again.

Contract: exactly one row per (consumer_group, topic, broker_name, queue_id, queue_offset, attempt), no
gap, no duplicate, and each failed message on the retry and dead-letter topics once, whatever was killed.
LAKEMQ_KILL_ROUNDS sets the number of kills (default 1; `make chaos ONLY=DRIVER ROUNDS=20`). The run after the
last kill is this process's own.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess

ROUNDS = int(os.environ.get("LAKEMQ_KILL_ROUNDS", "1"))
BATCH = 400
EVERY = 50  # one message in so many fails, always

HANDLER = f"""
def handle(message):
    if int(message.body) % {EVERY} == 0:
        raise ValueError("always fails")
"""


def test_a_driver_killed_after_the_ledger_commit_leaves_one_row_per_attempt(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    messages = (ROUNDS + 1) * BATCH
    client = broker.client()
    client.put_topic("orders", read_queue_nums=4, write_queue_nums=4)
    client.send_ndjson("orders", "\n".join(f'{{"body":"{n}"}}' for n in range(messages)).encode())
    (tmp_path / "shop.py").write_text(HANDLER)
    arguments = (
        *("--group", "g", "--topic", "orders", "--handler", "shop:handle", "--ledger", "ledger"),
        *("--endpoint", broker.endpoint, "--max-batch", str(BATCH), "--trigger", "200ms"),
        *("--from", "earliest", "--max-reconsume-times", "1", "--retry-delays", "1s"),
    )

    killed_in = []
    for _ in range(ROUNDS):
        with ConsumerProcess(tmp_path, *arguments, halt=True) as consumer:
            killed_in.append(consumer.halted_at())
            consumer.kill()
    settings = ConsumeSettings(
        group="g",
        topics=("orders",),
        handler=HandlerTarget("shop:handle", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=broker.endpoint,
        max_messages_per_batch=BATCH,
        trigger="200 milliseconds",
        max_reconsume_times=1,
        retry_delays="1s",
        start="earliest",
        until_idle_s=0.5,
    )
    consume(settings, lambda: spark)

    # A batch found in the ledger is not handled again, so each round got to a new one.
    assert killed_in == sorted(set(killed_in)), killed_in
    ledger = LedgerReader(tmp_path / "ledger")
    assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0
    assert ledger.sql("SELECT * FROM delivery_gaps").num_rows == 0
    failing = messages // EVERY
    counted = ledger.sql(
        "SELECT attempt, verdict, count(*) AS n FROM deliveries "
        "GROUP BY attempt, verdict ORDER BY attempt, verdict"
    )
    assert [tuple(row.values()) for row in counted.to_pylist()] == [
        (1, "ACK", messages - failing),
        (1, "RETRY", failing),
        (2, "DEAD", failing),
    ]
    assert ledger.sql("SELECT * FROM pending_retries").num_rows == 0
    assert ledger.sql("SELECT count(*) FROM dead_letters").column(0)[0].as_py() == failing
    assert [queue.max_offset for queue in client.queues("%RETRY%g")] == [failing]
    assert [queue.max_offset for queue in client.queues("%DLQ%g")] == [failing]
