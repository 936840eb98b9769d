"""The slow path of a send: what becomes of a body whose request is cancelled.

Contract: what was sent is stored whole or not at all, also where a stop cancels the request when a worker
thread is about to take its body. (An empty body is refused by the store.)
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest_api.broker.broker import Broker
from ingest_api.broker.ordered_sends import OrderedSends
from ingest_api.broker.send_service import SendService
from ingest_api.broker.thread_pools import BulkPool
from ingest_api.http.messages.send import SendPath
from ingest_api.http.request.body import BodyReader, Deadlines
from ingest_api.http.responses.error_responses import ErrorResponses
from ingest_api.setting_sources import load_settings

BODY = b"x" * 5_000


@pytest.mark.parametrize("content_type", [b"text/plain", b"application/octet-stream"])
def test_a_cancelled_large_send_is_stored_whole_or_not_at_all(tmp_path: Path, content_type: bytes) -> None:
    async def scenario() -> list[int]:
        settings = load_settings(
            None,
            {
                "store.path": str(tmp_path),
                "store.commitlog_file_size": 8 << 20,
                "limits.inline_bytes": 1_000,
                "limits.disk_full_ratio": 1,
            },
        )
        broker = Broker(settings.broker, "http://127.0.0.1:5", ("127.0.0.1", 5))
        started, may_go_on = threading.Event(), threading.Event()

        def hold_up(waited_s: float) -> None:
            started.set()
            assert may_go_on.wait(30)

        bulk = BulkPool(1, hold_up)
        limits, metrics = settings.limits, broker.metrics
        loop = asyncio.get_running_loop()
        bodies = BodyReader(
            Deadlines(30, loop.time, loop.call_at), broker.admission, limits.max_request_bytes
        )
        store, ordered = broker.store, OrderedSends(broker.store, "broker")
        service = SendService(store, broker.flush_waiter, broker.admission, bulk, metrics, limits, ordered)
        path = SendPath(service, bodies, metrics, ErrorResponses(metrics, 1_000), limits)
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/api/v1/topics/t/messages",
            "query_string": b"",
            "headers": [(b"content-type", content_type), (b"content-length", b"%d" % len(BODY))],
            "client": ("127.0.0.1", 9),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": BODY, "more_body": False}

        async def send(message: Any) -> None:
            raise AssertionError(f"nobody is there to answer: {message}")

        request = asyncio.ensure_future(path(scope, receive, send, "t"))
        await loop.run_in_executor(None, started.wait, 30)
        request.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await request
        assert broker.admission.inflight == 0
        assert broker.admission.parsing_bytes == 0
        may_go_on.set()
        await loop.run_in_executor(None, bulk.close)
        sizes = []
        if broker.store.topic_json("t") is not None:
            for queue_id, *_ in broker.store.queues("t"):
                broker.store.wait_dispatched(broker.store.watermarks()[0], 10_000)
                part = broker.store.read_arrow("t", queue_id, 0)
                if part.count:
                    sizes += [len(body) for body in pa.record_batch(part.batch)["body"].to_pylist()]
        await broker.stop()
        return sizes

    assert asyncio.run(scenario()) in ([], [len(BODY)])
