"""The broker core without a front door: what a second protocol would call.

Contract: sends, pulls, long polls, offsets and administration need nothing of ingest_api.http, and nothing of
it is loaded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest_api.broker.broker import Broker
from ingest_api.broker.gauges import Gauges, GroupLag
from ingest_api.broker.groups.offsets import QueueReset, ResetTarget
from ingest_api.broker.housekeeping import EVERY_S
from ingest_api.broker.lookup_service import EpochOffset, QueueBounds
from ingest_api.broker.pull_service import PullRequest
from ingest_api.broker.send_request import MessageFields, PayloadKind, SendRequest
from ingest_api.broker.send_service import SendResult
from ingest_api.broker.settings import BrokerSettings, LimitSettings, StoreSettings
from store_native import Slice
from store_native.errors import Closed, InvalidRequest, Unavailable
from tests.support.waiting import wait_until_async

TOPIC = "orders"
MIB = 1 << 20


def run(
    path: Path,
    scenario: Callable[[Broker], Awaitable[None]],
    *,
    faults: str = "",
    look_every_s: float = EVERY_S,
    **limits: int,
) -> None:
    """Runs a scenario against a broker with small files."""

    async def main() -> None:
        store = StoreSettings(
            path=str(path),
            commitlog_file_size=4 * MIB,
            consumequeue_file_entries=1_000,
            index_slots=1_000,
            index_entries=4_000,
            faults=faults,
        )
        settings = BrokerSettings(store=store, limits=LimitSettings(disk_full_ratio=1, **limits))
        broker = Broker(settings, "core://here", ("127.0.0.1", 9), look_every_s=look_every_s)
        try:
            await asyncio.wait_for(scenario(broker), 60)
        finally:
            await broker.stop()

    asyncio.run(main())


def pull_request(offset: int = 0, *, wait_ms: int = 0, arrow: bool = False, queue_id: int = 0) -> PullRequest:
    return PullRequest(TOPIC, queue_id, offset, arrow, 100, MIB, wait_ms, "*", "", None, None)


async def send(broker: Broker, *bodies: str) -> SendResult:
    payload = json.dumps({"messages": [{"body": body, "queue_id": 0} for body in bodies]}).encode()
    return await broker.send.send(SendRequest(TOPIC, PayloadKind.JSON), payload, len(payload))


def bodies(messages: bytes) -> list[str]:
    return [message["body"] for message in json.loads(messages)]


def test_what_is_sent_in_each_form_is_pulled(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        raw = SendRequest(
            TOPIC, PayloadKind.RAW, ("10.0.0.1", 4711), fields=MessageFields(tags="a", queue_id=0)
        )
        assert (await broker.send.send(raw, b"one", 3)).status == "SEND_OK"
        assert (await send(broker, "two", "three")).appended.count == 2
        lines = b'{"body":"four","queue_id":0}\n{"body":"five","queue_id":0}\n'
        await broker.send.send(SendRequest(TOPIC, PayloadKind.NDJSON), lines, len(lines))
        piece, messages = await broker.pull.pull(pull_request())
        assert bodies(messages) == ["one", "two", "three", "four", "five"]
        assert piece.status == "FOUND"
        assert json.loads(messages)[0]["born_host"] == "10.0.0.1:4711"
        _, stream = await broker.pull.pull(pull_request(arrow=True))
        assert pa.ipc.open_stream(stream).read_all()["body"].to_pylist()[:2] == [b"one", b"two"]

    run(tmp_path, scenario)


def test_a_payload_above_the_inline_size_is_made_and_stored_on_the_pool(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        order: list[str] = []

        def payload() -> bytes:
            order.append("made")
            return b'{"body":"large","queue_id":0}'

        done = await broker.send.send(
            SendRequest(TOPIC), payload, 200, on_stored=lambda: order.append("stored")
        )
        assert done.status == "SEND_OK"
        assert order == ["made", "stored"]
        assert broker.admission.inflight == 0

    run(tmp_path, scenario, inline_bytes=100)


def test_the_same_key_is_stored_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        request = SendRequest(TOPIC, idempotency_key="k-1")
        first, second = [await broker.send.send(request, b'{"body":"x"}', 12) for _ in range(2)]
        assert (first.appended.duplicate, second.appended.duplicate) == (False, True)
        assert broker.metrics.duplicates == 1

    run(tmp_path, scenario)


def test_what_a_group_sends_back_is_taken_whatever_the_limit_is_by_now(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for topic in ("%RETRY%g", "%DLQ%g"):
            body = b"x" * 101
            broker.send.check_size(topic, len(body))
            for kind, payload in ((PayloadKind.RAW, body), (PayloadKind.JSON, b'{"body":"%s"}' % body)):
                assert (await broker.send.send(SendRequest(topic, kind), payload, 1)).status == "SEND_OK"
            with pytest.raises(InvalidRequest, match="a file holds"):
                await broker.send.send(SendRequest(topic, PayloadKind.RAW), b"x" * 4 * MIB, 4 * MIB)

    run(tmp_path, scenario, max_message_bytes=100)


def test_refusals_are_raised_and_leave_nothing_in_flight(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(InvalidRequest, match="MALFORMED_BODY"):
            await broker.send.send(SendRequest(TOPIC), b"{", 1)
        with pytest.raises(InvalidRequest, match="MESSAGE_TOO_LARGE"):
            await broker.send.send(SendRequest(TOPIC, PayloadKind.RAW), b"x" * 101, 101)
        assert broker.admission.inflight == 0
        broker.begin_stop()
        with pytest.raises(Unavailable, match="SERVICE_NOT_AVAILABLE"):
            await send(broker, "late")

    run(tmp_path, scenario, max_message_bytes=100)


def test_a_held_pull_ends_with_a_message_with_its_consumer_and_with_the_broker(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await send(broker, "first")
        loop = asyncio.get_running_loop()

        went = asyncio.Event()

        async def gone() -> None:
            await went.wait()

        async def held(offset: int) -> asyncio.Task[tuple[Slice, bytes]]:
            pull = broker.pull.pull(pull_request(offset, wait_ms=50_000), gone)
            task = loop.create_task(pull)
            while broker.pull_hold.waiting == 0:
                assert not task.done(), "the pull was not held"
                await asyncio.sleep(0)
            return task

        task = await held(1)
        await send(broker, "second")
        assert bodies((await task)[1]) == ["second"]

        task = await held(2)
        went.set()
        assert (await task)[0].status == "NO_NEW_MSG"

        went.clear()
        task = await held(2)
        broker.begin_stop()
        assert (await task)[0].status == "NO_NEW_MSG"
        assert broker.metrics.held_pulls == 0

    run(tmp_path, scenario)


def test_where_messages_were_stored_is_known_without_their_answer(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.topics.put(TOPIC, read_queue_nums=2, write_queue_nums=2)
        payload = (
            b'{"messages":[{"body":"0","queue_id":1},{"body":"1","queue_id":1},{"body":"2","delay_level":1}]}'
        )
        appended = (
            await broker.send.send(SendRequest(TOPIC, full_results=True), payload, len(payload))
        ).appended
        results = json.loads(appended.answer("SEND_OK"))["results"]
        assert [(place[2], place[3], place[4]) for place in appended.places[:2]] == [
            (1, 0, False),
            (1, 1, False),
        ]
        assert appended.places[2][4], "a delayed message is scheduled"
        assert [(place[0], place[1]) for place in appended.places] == [
            (result["message_id"], result["offset_message_id"]) for result in results
        ]

    run(tmp_path, scenario)


def test_messages_are_looked_up(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        payload = json.dumps(
            {"messages": [{"body": f"{at}", "keys": ["k"], "queue_id": 0} for at in range(5)]}
        ).encode()
        done = await broker.send.send(SendRequest(TOPIC, PayloadKind.JSON), payload, len(payload))
        message_id, offset_message_id, *_ = done.appended.places[3]
        lookups = broker.lookups
        for known in (message_id, offset_message_id):
            assert json.loads(await lookups.message(known))["body"] == "3"
        assert json.loads(await lookups.message(message_id, TOPIC))["body"] == "3"
        with pytest.raises(InvalidRequest, match="MESSAGE_NOT_EXIST"):
            await lookups.message(message_id, "another")
        found = await lookups.messages_by_key(TOPIC, "k", 0, 1 << 60, 2)
        assert bodies(found) == ["3", "4"], "the newest, oldest first"
        first = json.loads(await lookups.message(done.appended.places[0][0]))["store_timestamp"]
        assert bodies(await lookups.messages_by_key(TOPIC, "k", 0, first - 1, 9)) == []
        with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
            await lookups.messages_by_key("nowhere", "k", 0, 1, 1)
        queues = (await lookups.queues(TOPIC)).queues
        assert queues[0] == QueueBounds(0, 0, 5, 5, [EpochOffset(1, 0, at_or_before=False)])
        assert {queue.max_offset for queue in queues[1:]} == {0}
        assert await lookups.offset_by_time(TOPIC, 0, first) == 0
        assert await lookups.offset_by_time(TOPIC, 0, first + 3_600_000) == 5
        with pytest.raises(InvalidRequest, match="QUEUE_NOT_EXIST"):
            await lookups.offset_by_time(TOPIC, 99, 0)

    run(tmp_path, scenario)


def test_a_search_by_key_is_bounded_in_bytes(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        payload = json.dumps(
            {"messages": [{"body": f"{at}" * 500, "keys": ["k"], "queue_id": 0} for at in range(5)]}
        ).encode()
        await broker.send.send(SendRequest(TOPIC, PayloadKind.JSON), payload, len(payload))
        found = await broker.lookups.messages_by_key(TOPIC, "k", 0, 1 << 60, 9)
        assert bodies(found) == ["3" * 500, "4" * 500]

    run(tmp_path, scenario, max_query_bytes=2_500)


def test_a_broker_is_ready_until_it_stops_or_its_store_fails(tmp_path: Path) -> None:
    async def stops(broker: Broker) -> None:
        broker.check_ready()
        assert broker.recovery["clean"] in (True, False)
        assert broker.store_id
        broker.begin_stop()
        with pytest.raises(Unavailable, match="stopping"):
            broker.check_ready()

    async def fails(broker: Broker) -> None:
        with pytest.raises(Closed, match="STORE_POISONED"):
            await send(broker, "lost")
        with pytest.raises(Closed, match="takes no more messages"):
            broker.check_ready()
        assert broker.gauges.permission() == 4

    run(tmp_path / "stops", stops)
    run(tmp_path / "fails", fails, faults="flush.before:1:panic")


def test_gauges_say_what_is_there(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await send(broker, "0", "1", "2")
        payload = b'{"body":"late","delay_level":9}'
        await broker.send.send(SendRequest(TOPIC), payload, len(payload))
        await broker.groups.put("g")
        await broker.group_offsets.commit("g", [(TOPIC, 0, 1)], None)
        gauges = broker.gauges
        assert TOPIC in gauges.topics()
        assert gauges.has_topic(TOPIC)
        assert not gauges.has_topic("nowhere")
        assert "g" in gauges.groups()
        (behind,) = (lag for lag in gauges.lags() if lag.group == "g")
        assert (behind.topic, behind.messages) == (TOPIC, 2)
        later = Gauges(broker.store, broker.admission, clock=lambda: time.time() + 3_600)
        (aged,) = (lag.latency_ms for lag in later.lags() if lag.group == "g")
        assert 3_600_000 <= aged < 3_720_000
        await broker.group_offsets.commit("g", [(TOPIC, 0, 3)], None)
        assert list(later.lags()) == [GroupLag("g", TOPIC, 0, 0)]
        assert dict(gauges.delayed())[9] == 1
        assert gauges.store_counters()["messages_in_total"] == 4
        assert gauges.permission() == 6
        broker.admission.set_disk_used(1.5)
        assert gauges.permission() == 4

    run(tmp_path, scenario)


def test_topics_are_administered(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        made = await broker.topics.put("t", read_queue_nums=2, write_queue_nums=2)
        assert made == (True, True)
        assert await broker.topics.put("t", perm=4) == (False, True)
        assert json.loads(broker.topics.get("t"))["perm"] == 4
        route = broker.tables.route("t")
        assert route is not None
        assert route.queues[broker.settings.broker_name].perm == 4
        assert [entry["topic"] for entry in json.loads(await broker.topics.page("s", 10))] == ["t"]
        assert (await broker.topics.delete("t")).settled
        with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
            broker.topics.get("t")
        assert broker.tables.route("t") is None

    run(tmp_path, scenario)


def test_groups_commit_and_reset_their_offsets_under_a_lease(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await send(broker, "0", "1", "2")
        assert (await broker.groups.put("g", retry_max_times=3)).is_new
        assert json.loads(broker.groups.get("g"))["retry_max_times"] == 3
        assert await broker.group_offsets.commit("g", [(TOPIC, 0, 2)], None)
        assert broker.group_offsets.rows("g") == [(TOPIC, 0, 2)]
        plan = await broker.group_offsets.plan_reset("g", ResetTarget(TOPIC, "earliest"))
        assert plan[0] == QueueReset(TOPIC, 0, 2, 0, redelivered=2, skipped=0)
        assert broker.group_offsets.rows("g") == [(TOPIC, 0, 2)], "a plan moves nothing"
        epoch, _ = broker.leases.acquire("g", "driver", 60_000)
        with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
            await broker.group_offsets.reset("g", plan[:1], None)
        assert await broker.group_offsets.reset("g", plan[:1], epoch)
        assert broker.group_offsets.rows("g") == [(TOPIC, 0, 0)]
        for stale in (None, epoch + 1):
            with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
                await broker.groups.delete("g", stale)
        assert broker.group_offsets.rows("g") == [(TOPIC, 0, 0)]
        assert (await broker.groups.delete("g", epoch)).settled
        with pytest.raises(InvalidRequest, match="GROUP_NOT_EXIST"):
            broker.group_offsets.rows("g")

    run(tmp_path, scenario)


def test_changes_of_a_group_at_once_are_all_kept(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for times in range(10):
            await asyncio.gather(
                broker.groups.put("g", retry_max_times=times),
                broker.groups.put("g", consume_enable=times % 2 == 0),
                broker.groups.put("g", attributes={"times": str(times)}),
            )
            group = json.loads(broker.groups.get("g"))
            assert group["retry_max_times"] == times
            assert group["consume_enable"] == (times % 2 == 0)
            assert group["attributes"] == {"times": str(times)}

    run(tmp_path, scenario)


def test_what_the_store_has_to_say_is_in_the_brokers_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Broker) -> None:
        shutil.rmtree(tmp_path / "config")
        (tmp_path / "config").write_text("a file where a directory belongs")
        await broker.topics.put("t")
        await wait_until_async(
            lambda: any("the files under config/ are behind" in text for text in caplog.messages)
        )
        (tmp_path / "config").unlink()
        (tmp_path / "config").mkdir(exist_ok=True)  # the store, which tries again, may be first

    with caplog.at_level(logging.WARNING, "lakemq.broker"):
        run(tmp_path, scenario)
    (record,) = [r for r in caplog.records if "are behind" in r.getMessage()][:1]
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("store: ")


def test_a_store_that_is_read_only_for_good_is_in_the_log_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(Closed, match="STORE_POISONED"):
            await send(broker, "lost")
        await wait_until_async(lambda: any("read-only until reopened" in text for text in caplog.messages))

    with caplog.at_level(logging.WARNING, "lakemq.broker"):
        # No round of the housekeeping says it.
        run(tmp_path, scenario, faults="flush.before:1:panic", look_every_s=3600.0)
    (record,) = [r for r in caplog.records if "read-only until reopened" in r.getMessage()]
    assert record.levelname == "ERROR"
    assert "lakemq-flusher ended in a panic: injected at FlushBefore" in record.getMessage()


def test_the_core_loads_no_web_framework() -> None:
    code = (
        "import sys, ingest_api.broker.broker; "
        "print([m for m in sys.modules if m.split('.')[0] in ('fastapi', 'starlette', 'uvicorn', 'pydantic') "
        "or m.startswith('ingest_api.http')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_held_pull_of_a_topic_that_is_deleted_ends_and_says_so(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await send(broker, "first")
        task = asyncio.get_running_loop().create_task(broker.pull.pull(pull_request(1, wait_ms=50_000)))
        await wait_until_async(lambda: broker.pull_hold.waiting == 1)
        await broker.topics.delete(TOPIC)
        with pytest.raises(InvalidRequest, match="TOPIC_NOT_EXIST"):
            await task

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "target",
    [{}, {"end": "middle"}, {"end": "earliest", "timestamp": 5}, {"timestamp": 5, "offsets": {0: 1}}],
)
def test_a_reset_goes_to_exactly_one_place(target: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL"):
        ResetTarget("t", **target)
