"""What verdicts send, as one task sends it: with real brokers, without Spark.

Contract: what a broker took is in the rows whatever ended the task; a task that is run again with the
messages marked that were sent asks for the rest alone, in the same requests, so that nothing is stored twice,
also by a broker that has forgotten the keys; what is given up is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.table import OUTBOX
from jobs.outbox.lane_stop import LaneStop
from jobs.outbox.send_task import SendTask
from lakemq.client import Client, OutcomeUnknown
from lakemq.client.errors import may_pass
from store_native.errors import from_code
from structured_streaming import options
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch

FORGETFUL = "idempotence_max_keys = 1\n"
"""In the section [store]."""
NUMBERS = pa.list_(pa.int32())


class Lane:
    """The rows of one lane, each of which sends messages, and what was sent of them."""

    def __init__(self, broker: BrokerProcess, rows_per_request: int = 2) -> None:
        self.broker = broker
        given = {"endpoint": broker.endpoint, "rowsPerRequest": str(rows_per_request), "retryTimeoutMs": "1"}
        self.options = options.parse_write(given)
        self.rows: list[list[tuple[str, bytes]]] = []
        self.sent: set[tuple[int, int]] = set()
        self.given_up: set[tuple[int, int]] = set()

    def run(self, pass_s: float = 60.0) -> tuple[list[tuple[int, int]], list[LaneStop]]:
        """Sends; returns which messages the task says were sent, and what ended it."""
        stops: list[LaneStop] = []
        task = SendTask("g", self.options, stops.append, pass_s)
        batches = list(task(iter([self._batch()])))
        rows = [row for batch in batches for row in batch.to_pylist()]
        sent = [(row["queue_offset"], row["number"]) for row in rows]
        self.sent |= set(sent)
        return sent, stops

    def bodies(self, topic: str) -> list[bytes]:
        """What is in a topic, in order."""
        with self.broker.client() as client:
            await_dispatch(client)
            return [message.body for message in client.pull(topic, 0, 0, max=1000).messages]

    def _batch(self) -> pa.RecordBatch:
        count = len(self.rows)

        def numbers(of: set[tuple[int, int]]) -> pa.Array:
            return pa.array(
                [[n for at, n in sorted(of) if at == row] or None for row in range(count)], NUMBERS
            )

        columns = {
            "consumer_group": pa.array(["g"] * count),
            "batch_id": pa.array([0] * count, pa.int64()),
            "lane": pa.array([0] * count, pa.int32()),
            "topic": pa.array(["orders"] * count),
            "broker_name": pa.array(["broker-a"] * count),
            "queue_id": pa.array([0] * count, pa.int32()),
            "queue_offset": pa.array(range(count), pa.int64()),
            "attempt": pa.array([1] * count, pa.int32()),
            "query_id": pa.array(["q"] * count),
            "message_id": pa.array([f"ID{row}" for row in range(count)]),
            "outbox": pa.array([_outbox(at, row) for at, row in enumerate(self.rows)], OUTBOX),
            "sent_numbers": numbers(self.sent),
            "given_up_numbers": numbers(self.given_up),
        }
        return pa.RecordBatch.from_pydict(columns)


def _outbox(at: int, messages: Iterable[tuple[str, bytes]]) -> list[dict[str, Any]]:
    plain: dict[str, Any] = {
        "keys": [],
        "tags": None,
        "properties": [],
        "sharding_key": None,
        "delay_level": 0,
    }
    return [
        plain | {"topic": topic, "message_id": f"{at:016X}{number:016X}", "body": body}
        for number, (topic, body) in enumerate(messages, start=1)
    ]


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return start_broker("forgetful", config=FORGETFUL)


def make(client: Client, *topics: str) -> None:
    for topic in topics:
        client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)


def test_what_was_sent_before_a_refusal_is_said_and_not_sent_again_by_who_forgot_the_keys(
    broker: BrokerProcess,
) -> None:
    lane = Lane(broker)
    with broker.client() as client:
        make(client, "a", "b")
        client.put_topic("b", perm=4)
        lane.rows = [[("a", b"%d" % n), ("b", b"%d" % n)] for n in range(4)]
        sent, stops = lane.run()
        assert sent == [(0, 1), (1, 1), (2, 1), (3, 1)]
        ((why, code),) = [(stop.why, stop.code) for stop in stops]
        assert (why, code) == ("refused", "NO_PERMISSION")
        assert dict(stops[0].message)["queue_offset"] == 0
        assert dict(stops[0].message)["sent_topic"] == "b"
        client.put_topic("b", perm=6)
    sent, stops = lane.run()
    assert (sent, stops) == ([(0, 2), (1, 2), (2, 2), (3, 2)], [])
    assert lane.bodies("a") == lane.bodies("b") == [b"0", b"1", b"2", b"3"]
    assert lane.run() == ([], [])


def test_a_message_that_is_given_up_is_left_out_and_the_others_keep_their_order(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("strict", config=FORGETFUL + "[limits]\nmax_message_bytes = 1000\n")
    lane = Lane(broker, rows_per_request=3)
    with broker.client() as client:
        make(client, "a")
    lane.rows = [[("a", b"x" * 2000 if n == 4 else b"%d" % n)] for n in range(8)]
    sent, (stop,) = lane.run()
    assert sent == [(0, 1), (1, 1), (2, 1)]
    assert (stop.why, stop.code) == ("refused", "MESSAGE_TOO_LARGE")
    assert dict(stop.message)["queue_offset"] == 4
    lane.given_up = {(4, 1)}
    sent, stops = lane.run()
    assert (sent, stops) == ([(n, 1) for n in (3, 5, 6, 7)], [])
    assert lane.bodies("a") == [b"%d" % n for n in (0, 1, 2, 3, 5, 6, 7)]


def test_a_pass_ends_between_two_requests_and_the_next_goes_on(broker: BrokerProcess) -> None:
    lane = Lane(broker)
    with broker.client() as client:
        make(client, "a")
    lane.rows = [[("a", b"%d" % n)] for n in range(5)]
    passes = [lane.run(pass_s=0.0) for _ in range(4)]
    assert [sent for sent, _ in passes] == [[(0, 1), (1, 1)], [(2, 1), (3, 1)], [(4, 1)], []]
    assert [[stop.why for stop in stops] for _, stops in passes] == [["time"], ["time"], ["time"], []]
    assert lane.bodies("a") == [b"%d" % n for n in range(5)]


def test_halves_of_a_request_that_is_too_large_are_kept_where_one_of_them_was_sent(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    config = "[limits]\nmax_message_bytes = 4000\nmax_request_bytes = 10000\n"
    broker = start_broker("narrow", config=FORGETFUL + config)
    lane = Lane(broker, rows_per_request=4)
    with broker.client() as client:
        make(client, "a")
    bodies = [b"%d" % n + b"x" * (4500 if n == 3 else 3000) for n in range(4)]
    lane.rows = [[("a", body)] for body in bodies]
    sent, (stop,) = lane.run()
    assert sent == [(0, 1), (1, 1)]
    assert (stop.code, dict(stop.message)["queue_offset"]) == ("MESSAGE_TOO_LARGE", 3)
    lane.given_up = {(3, 1)}
    assert lane.run() == ([(2, 1)], [])
    assert lane.bodies("a") == bodies[:3]


def test_a_half_that_was_stored_and_not_recorded_is_asked_for_under_its_own_key_again(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("halves", config="[limits]\nmax_message_bytes = 4000\nmax_request_bytes = 10000\n")
    lane = Lane(broker, rows_per_request=4)
    with broker.client() as client:
        make(client, "a")
    bodies = [b"%d" % n + b"x" * 3000 for n in range(4)]
    lane.rows = [[("a", body)] for body in bodies]
    assert lane.run() == ([(n, 1) for n in range(4)], [])
    lane.sent = {(0, 1), (1, 1)}  # the task ended before what it said of the second half was kept
    assert lane.run() == ([(2, 1), (3, 1)], [])
    assert lane.bodies("a") == bodies


def test_a_broker_that_is_away_is_no_refusal(broker: BrokerProcess) -> None:
    lane = Lane(broker)
    lane.rows = [[("a", b"0")]]
    broker.stop()
    sent, (stop,) = lane.run()
    assert (sent, stop.why) == ([], "away")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("REQUEST_TIMEOUT", "away"),
        ("SYSTEM_BUSY", "away"),
        ("STORE_CLOSED", "away"),
        ("NO_PERMISSION", "refused"),
        ("MESSAGE_TOO_LARGE", "refused"),
    ],
)
def test_what_passes_by_itself_is_known_by_its_code(code: str, why: str) -> None:
    stop = LaneStop.of(from_code(code, "d"), {})
    assert stop.why == why
    assert (stop.error.code, may_pass(stop.error)) == (code, why == "away")


def test_a_lost_answer_passes_by_itself() -> None:
    stop = LaneStop.of(OutcomeUnknown(detail="no answer"), {})
    assert (stop.why, may_pass(stop.error)) == ("away", True)
