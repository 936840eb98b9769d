"""Sends while they wait for their flush: what they hold, what they count.

Contract: a send that waits holds its place and not its payload; FLUSH_DISK_TIMEOUT is counted once; a send
that need not wait does not.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ingest_api.broker.flush_wait import Outcome
from ingest_api.broker.send_request import SendRequest
from tests.support.held_flush import Payload, Sending, run

REQUEST = SendRequest("t")
MESSAGE = b'{"body":"x"}'


@pytest.mark.parametrize("large", [False, True])
def test_a_send_that_waits_for_its_flush_does_not_hold_its_payload(tmp_path: Path, large: bool) -> None:
    async def scenario(sending: Sending) -> None:
        made = Payload(b'{"body":"%s"}' % (b"x" * (5_000 if large else 500)))
        stored, size, kept = [], len(made), [made]
        del made
        Payload.freed.clear()
        sent = sending.service.send(
            REQUEST, kept.pop if large else kept.pop(), size, on_stored=lambda: stored.append(True)
        )
        task = asyncio.ensure_future(sent)
        await sending.flush.asked.wait()
        assert Payload.freed == [size]
        assert stored == [True]
        assert sending.admission.inflight == 1
        sending.flush.future.set_result(True)
        assert (await task).status == "SEND_OK"
        assert sending.admission.inflight == 0

    run(tmp_path, scenario)


def test_a_flush_that_takes_too_long_is_counted_once_on_either_path(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        sending.flush.future.set_result(False)
        result = await sending.service.send(REQUEST, MESSAGE, len(MESSAGE))
        assert result.status == "FLUSH_DISK_TIMEOUT"
        assert sending.metrics.send_status == {"FLUSH_DISK_TIMEOUT": 1}
        told: list[Outcome] = []
        appended = sending.service.append(REQUEST, MESSAGE)
        assert sending.service.on_durable(appended, told.append)
        assert sending.admission.inflight == 1
        assert sending.flush.tell is not None
        sending.flush.tell(False)
        assert told == [False]
        assert sending.metrics.send_status == {"FLUSH_DISK_TIMEOUT": 2}
        assert sending.admission.inflight == 0

    run(tmp_path, scenario)


def test_a_send_that_need_not_wait_does_not(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        assert (await sending.service.send(REQUEST, MESSAGE, len(MESSAGE), wait=False)).status == "SEND_OK"
        assert not sending.flush.asked.is_set()

    run(tmp_path, scenario)
