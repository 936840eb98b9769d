"""Sends while they wait for their flush: what they hold, what they count, what of them is stored.

Contract: a send that waits holds its place and not its payload; FLUSH_DISK_TIMEOUT is counted once; a send
that need not wait does not; however a wait ends, its place is free again. Each field a producer gives is
stored, and only a payload above its bound goes to the pool.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ingest_api.broker.flush_wait import SendStatus
from ingest_api.broker.send_request import MessageFields, PayloadKind, SendRequest
from ingest_api.broker.thread_pools import BulkPool
from store_native.errors import Closed, InvalidRequest, Unavailable
from tests.support.held_flush import HeldSends, Payload, run

REQUEST = SendRequest("t")
MESSAGE = b'{"body":"x"}'


@pytest.mark.parametrize("large", [False, True])
def test_a_send_that_waits_for_its_flush_does_not_hold_its_payload(tmp_path: Path, large: bool) -> None:
    async def scenario(sends: HeldSends) -> None:
        made = Payload(b'{"body":"%s"}' % (b"x" * (5_000 if large else 500)))
        stored, size, kept = [], len(made), [made]
        del made
        Payload.freed.clear()
        sent = sends.service.send(
            REQUEST, kept.pop if large else kept.pop(), size, on_stored=lambda: stored.append(True)
        )
        task = asyncio.ensure_future(sent)
        await sends.flush.asked.wait()
        assert Payload.freed == [size]
        assert stored == [True]
        assert sends.admission.inflight == 1
        sends.flush.future.set_result(True)
        assert (await task).status == "SEND_OK"
        assert sends.admission.inflight == 0

    run(tmp_path, scenario)


def test_a_flush_that_takes_too_long_is_counted_once_on_either_path(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        sends.flush.future.set_result(False)
        result = await sends.service.send(REQUEST, MESSAGE, len(MESSAGE))
        assert result.status == "FLUSH_DISK_TIMEOUT"
        assert sends.metrics.send_status == {"FLUSH_DISK_TIMEOUT": 1}
        statuses: list[SendStatus | Closed] = []
        appended = sends.service.append(REQUEST, MESSAGE)
        assert sends.service.on_durable(appended, statuses.append)
        assert sends.admission.inflight == 1
        assert sends.flush.notify is not None
        sends.flush.notify(False)
        assert statuses == ["FLUSH_DISK_TIMEOUT"]
        assert sends.metrics.send_status == {"FLUSH_DISK_TIMEOUT": 2}
        assert sends.admission.inflight == 0

    run(tmp_path, scenario)


def test_what_is_appended_on_the_loop_is_flushed_when_its_pass_ends(tmp_path: Path) -> None:
    """A large one is appended on a thread of the pool: the store hears of it at once."""

    async def scenario(sends: HeldSends) -> None:
        sends.flush.future.set_result(True)
        later: list[bool] = []
        append = sends.service._append  # noqa: SLF001 - what the store is told shows nowhere else

        def noted(*given: Any, flush_later: bool) -> Any:
            later.append(flush_later)
            return append(*given, flush_later=flush_later)

        sends.service._append = noted  # type: ignore[method-assign, assignment]  # noqa: SLF001
        for kind, body in [
            (PayloadKind.JSON, MESSAGE),
            (PayloadKind.NDJSON, MESSAGE),
            (PayloadKind.RAW, b"x"),
        ]:
            await sends.service.send(SendRequest("t", kind), body, len(body), wait=False)
        assert (later, sends.flush.soon) == ([True] * 3, 3)
        sends.service.append_plain(PayloadKind.JSON, "t", MESSAGE, None)
        assert sends.flush.soon == 4
        large = b'{"body":"%s"}' % (b"x" * 5_000)
        await sends.service.send(REQUEST, large, len(large))
        assert (later[3:], sends.flush.soon) == ([False], 4)

    run(tmp_path, scenario)


def test_a_send_that_need_not_wait_does_not(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        assert (await sends.service.send(REQUEST, MESSAGE, len(MESSAGE), wait=False)).status == "SEND_OK"
        assert not sends.flush.asked.is_set()

    run(tmp_path, scenario)


@pytest.mark.parametrize("end", [Closed("STORE_POISONED", "fsync failed"), RuntimeError("a defect"), None])
def test_a_place_is_free_again_however_a_wait_ends(tmp_path: Path, end: Exception | None) -> None:
    async def scenario(sends: HeldSends) -> None:
        waiting = asyncio.ensure_future(sends.service.send(REQUEST, MESSAGE, len(MESSAGE)))
        await sends.flush.asked.wait()
        assert sends.admission.inflight == 1
        if end is None:
            waiting.cancel()
        else:
            sends.flush.future.set_exception(end)
        (ended,) = await asyncio.gather(waiting, return_exceptions=True)
        assert type(ended) is (asyncio.CancelledError if end is None else type(end))
        assert sends.admission.inflight == 0
        assert not sends.metrics.topics_in, "counted, and its end is not known"

    run(tmp_path, scenario)


def test_only_a_payload_above_the_bound_goes_to_the_pool(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        waited: list[float] = []
        bulk, sends.service._bulk = sends.service._bulk, BulkPool(1, waited.append)  # noqa: SLF001 - counted
        for size, runs in ((999, 0), (1_000, 0), (1_001, 1)):
            payload = MESSAGE.ljust(size)
            await sends.service.send(REQUEST, payload, size, wait=False)
            assert len(waited) == runs
        await sends.service.send(REQUEST, lambda: MESSAGE, 10, wait=False)
        assert len(waited) == 2, "what has to be made first is made on the pool"
        sends.service._bulk.close()  # noqa: SLF001
        sends.service._bulk = bulk  # noqa: SLF001

    run(tmp_path, scenario)


def test_a_message_is_refused_only_above_its_bound(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        most = sends.limits.max_message_bytes
        sends.service.check_size("t", most)
        with pytest.raises(InvalidRequest, match="MESSAGE_TOO_LARGE") as refused:
            sends.service.check_size("t", most + 1)
        assert refused.value.context == {"limit": most, "size": most + 1}
        raw = SendRequest("t", PayloadKind.RAW)
        with pytest.raises(InvalidRequest, match="MESSAGE_TOO_LARGE") as refused:
            await sends.service.send(raw, b"x" * (most + 1), most + 1)
        assert refused.value.context["size"] == most + 1
        assert sends.admission.inflight == 0

    run(tmp_path, scenario)


def test_each_field_a_producer_gives_is_stored(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        fields = MessageFields("a", ["k1", "k2"], [("color", "red")], "shard", 3, 7, 0, "M-1")
        raw = SendRequest("t", PayloadKind.RAW, ("10.0.0.1", 4711), "key", fields=fields)
        assert not sends.service.append(raw, b"x").duplicate
        assert sends.service.append(raw, b"x").duplicate
        (found,) = messages(sends, 3)
        shown = {
            name: found[name] for name in ("tags", "keys", "properties", "flag", "born_host", "message_id")
        }
        assert shown == {
            "tags": "a",
            "keys": ["k1", "k2"],
            "properties": shown["properties"],
            "flag": 7,
            "born_host": "10.0.0.1:4711",
            "message_id": "M-1",
        }
        assert shown["properties"]["color"] == "red"
        late = SendRequest("t", PayloadKind.RAW, fields=MessageFields(queue_id=2, delay_level=18))
        sends.service.append(late, b"later")
        assert messages(sends, 2) == []
        sends.service.append_plain(PayloadKind.JSON, "t", b'{"body":"p","queue_id":0}', ("10.0.0.2", 1))
        (plain,) = messages(sends, 0)
        assert (plain["born_host"], plain["flag"]) == ("10.0.0.2:1", 0)
        batch = b'{"messages":[{"body":"a","queue_id":1},{"body":"b","queue_id":1}]}'
        request = SendRequest("t", PayloadKind.JSON, ("10.0.0.3", 1), "other", full_results=True)
        answer = json.loads(sends.service.append(request, batch).answer("SEND_OK"))
        assert len(answer["results"]) == 2
        assert {one["born_host"] for one in messages(sends, 1)} == {"10.0.0.3:1"}
        again = sends.service.append(request, batch)
        assert again.duplicate
        few = sends.service.append(SendRequest("t"), batch)
        assert not json.loads(few.answer("SEND_OK")).get("results")
        sends.service.count("t", few, 66)
        assert (sends.metrics.topics_in["t"].messages, sends.metrics.topics_in["t"].bytes) == (2, 66)

    run(tmp_path, scenario)


def test_a_sharding_key_keeps_its_messages_in_one_queue(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        for _ in range(8):
            fields = MessageFields(sharding_key="s")
            sends.service.append(SendRequest("t", PayloadKind.RAW, fields=fields), b"x")
        counts = [len(messages(sends, queue_id)) for queue_id, *_ in sends.store.queues("t")]
        assert sorted(counts)[-1] == 8
        assert len(counts) > 1

    run(tmp_path, scenario)


def test_a_message_that_asks_not_to_wait_for_the_store_does_not(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        payload = b'{"body":"x","wait_store_ok":false}'
        assert (await sends.service.send(REQUEST, payload, len(payload))).status == "SEND_OK"
        appended = sends.service.append(REQUEST, payload)
        assert not sends.service.on_durable(appended, lambda outcome: None)
        assert not sends.flush.asked.is_set()
        assert sends.admission.inflight == 0

    run(tmp_path, scenario)


def messages(sends: HeldSends, queue_id: int) -> list[dict[str, Any]]:
    """What is in a queue; nobody was answered, so the dispatcher is waited for."""
    sends.store.wait_dispatched(sends.store.watermarks()[0], 10_000)
    found: list[dict[str, Any]] = json.loads(sends.store.read_json("t", queue_id, 0).messages)
    return found


def test_a_refusal_before_the_payload_is_read_is_admissions(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        sends.service.check()
        assert sends.service.is_open
        sends.admission.closing = True
        with pytest.raises(Unavailable, match="the broker is stopping"):
            sends.service.check()
        assert not sends.service.is_open
        end = sends.store.watermarks()[0]
        with pytest.raises(Unavailable, match="nothing was stored"):
            await sends.service.send(REQUEST, MESSAGE, len(MESSAGE))
        assert sends.store.watermarks()[0] == end
        assert sends.admission.inflight == 0

    run(tmp_path, scenario)


def test_a_message_too_large_is_refused_with_both_sizes(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        most = sends.limits.max_message_bytes
        with pytest.raises(InvalidRequest) as refused:
            sends.service.check_size("t", most + 1)
        assert refused.value.code == "MESSAGE_TOO_LARGE"
        assert refused.value.detail == f"the message has {most + 1} bytes, at most {most} are taken"

    run(tmp_path, scenario)


@pytest.mark.parametrize("durable", [True, False])
def test_a_send_waits_for_its_own_end_and_says_where_it_is(tmp_path: Path, durable: bool) -> None:
    async def scenario(sends: HeldSends) -> None:
        stored: list[int] = []
        sends.flush.future.set_result(durable)
        for n in range(3):
            result = await sends.service.send(
                REQUEST, MESSAGE, len(MESSAGE), on_stored=lambda: stored.append(len(sends.flush.ends))
            )
            end = sends.store.watermarks()[0]
            assert (sends.flush.ends[-1], result.appended.end_offset) == (end, end)
            assert stored == list(range(n + 1)), "the payload is needed no more, and only then waits"
            assert (sends.metrics.topics_in["t"].messages, sends.metrics.topics_in["t"].bytes) == (
                n + 1,
                (n + 1) * len(MESSAGE),
            )
        appended = sends.service.append(REQUEST, MESSAGE)
        assert sends.service.on_durable(appended, lambda outcome: None) is True
        assert sends.flush.ends[-2:] == [appended.end_offset] * 2, "asked whether it is, then to be told"

    run(tmp_path, scenario)


def test_what_is_as_safe_as_asked_is_said_so_at_once(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        appended = sends.service.append(REQUEST, b'{"body":"x","wait_store_ok":false}')
        assert sends.service.on_durable(appended, lambda outcome: None) is False

    run(tmp_path, scenario)


def test_each_repeat_is_counted_as_one(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        keyed = SendRequest("t", idempotency_key="k")
        for repeats in range(4):
            await sends.service.send(keyed, MESSAGE, len(MESSAGE), wait=False)
            assert sends.metrics.duplicates == repeats
        assert sends.metrics.topics_in["t"].messages == 1

    run(tmp_path, scenario)
