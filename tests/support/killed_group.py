"""A group of which some messages always fail and whose driver is killed: its parts, and how it has to end.

Contract: exactly one row per (consumer_group, topic, broker_name, queue_id, queue_offset, attempt), no gap,
no duplicate, and each failed message on the retry and dead-letter topics once, whatever was killed.
"""

from __future__ import annotations

from pathlib import Path

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq import Client, Message
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch

EVERY = 50
"""One message in so many fails, always."""
_HANDLER = f"""
def handle(message):
    if int(message.text) % {EVERY} == 0:
        raise ValueError("always fails")
"""


class KilledGroup:
    """The group.

    Args:
        broker: Where its messages are.
        directory: Where its handler and ledger are.
        name: Of the handler's module: workers that have run another test of a session know its modules.
        batch: Messages of a batch at most.

    Attributes:
        posted: Messages that were sent.
        arguments: Of `lakemq consume` in the directory.
        settings: Of the run after the last kill, in this process.
    """

    def __init__(self, broker: BrokerProcess, directory: Path, name: str, batch: int) -> None:
        (directory / f"{name}.py").write_text(_HANDLER)
        self._client: Client = broker.client()
        self._client.put_topic("orders", read_queue_nums=4, write_queue_nums=4)
        self._ledger = directory / "ledger"
        self.posted = 0
        handler = f"{name}:handle"
        self.arguments = (
            *("--group", "g", "--topic", "orders", "--handler", handler, "--ledger", "ledger"),
            *("--endpoint", broker.endpoint, "--max-batch", str(batch), "--trigger", "200ms"),
            *("--from", "earliest", "--max-reconsume-times", "1", "--retry-delays", "1s"),
        )
        self.settings = ConsumeSettings(
            group="g",
            topics=("orders",),
            handler=HandlerTarget(handler, "auto", (str(directory),)),
            ledger=ledger_at(str(self._ledger)),
            endpoint=broker.endpoint,
            max_messages_per_batch=batch,
            trigger="200 milliseconds",
            max_reconsume_times=1,
            retry_delays="1s",
            start="earliest",
            until_idle_s=0.5,
        )

    def post(self, messages: int) -> None:
        """Sends so many more, and waits until they can be read."""
        numbers = range(self.posted, self.posted + messages)
        self._client.send_many("orders", [Message(str(number)) for number in numbers])
        await_dispatch(self._client)
        self.posted += messages

    def check(self) -> None:
        """Holds the contract, behind the last run."""
        ledger = LedgerReader(self._ledger)
        assert ledger.sql("SELECT * FROM duplicate_deliveries").num_rows == 0
        assert ledger.sql("SELECT * FROM delivery_gaps").num_rows == 0
        failing = self.posted // EVERY
        counted = ledger.sql(
            "SELECT attempt, verdict, count(*) AS n FROM deliveries "
            "GROUP BY attempt, verdict ORDER BY attempt, verdict"
        )
        assert [tuple(row.values()) for row in counted.to_pylist()] == [
            (1, "ACK", self.posted - failing),
            (1, "RETRY", failing),
            (2, "DEAD", failing),
        ]
        assert ledger.sql("SELECT * FROM pending_retries").num_rows == 0
        assert ledger.sql("SELECT count(*) FROM dead_letters").column(0)[0].as_py() == failing
        assert [queue.max_offset for queue in self._client.queues("%RETRY%g")] == [failing]
        assert [queue.max_offset for queue in self._client.queues("%DLQ%g")] == [failing]
