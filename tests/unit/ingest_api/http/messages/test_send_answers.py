"""Every end of a send over HTTP: its status, what it stored, and that it gave back what it took.

Contract: a refusal stores nothing; what is refused by its head is not read; whatever the end, no place and no
reserved byte is kept. A body is taken in whole at its limit, on either path, and what the fast path does not
take is not stored. A client that has the answer can read the message at once.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ingest_api.broker.broker import Broker
from ingest_api.broker.pull_service import PullRequest
from ingest_api.broker.send_request import PayloadKind
from ingest_api.broker.settings import BrokerSettings, LimitSettings, StoreSettings
from ingest_api.http.messages.send import SendPath
from ingest_api.http.request.body import RETURNED, BodyReader, Deadlines
from ingest_api.http.responses.error_responses import ErrorResponses
from store_native.errors import Closed, Unavailable
from tests.support.held_flush import HeldSends
from tests.support.held_flush import run as run_held
from tests.support.waiting import wait_until_async

Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")
TEXT: Header = (b"content-type", b"text/plain")
GZIP: Header = (b"content-encoding", b"gzip")
EXPECT: Header = (b"expect", b"100-continue")
INLINE = 1_000
MOST = 200_000
MESSAGE_MOST = 2_000
KEEP = b'{"body":"x","queue_id":0}'


def length(size: int) -> Header:
    return b"content-length", b"%d" % size


class Posting:
    """A broker and its path of sends; ``post`` returns the status, and the answer's object."""

    def __init__(self, broker: Broker, slow_request_ms: int = 60_000) -> None:
        self.broker = broker
        limits = broker.settings.limits
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(limits.body_timeout_s, loop.time, loop.call_at)
        bodies = BodyReader(deadlines, broker.admission, limits.max_request_bytes)
        errors = ErrorResponses(broker.metrics, slow_request_ms)
        self.path = SendPath(broker.send, bodies, broker.metrics, errors, limits)

    async def post(
        self,
        chunks: list[bytes] | None,
        *headers: Header,
        query: bytes = b"",
        end: str = "whole",
        topic: str = "t",
    ) -> tuple[int, dict[str, Any]]:
        """Posts a body in its chunks; None: the body must not be asked for."""
        left = list(chunks or [])
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            assert chunks is not None, "the body of a refused request was read"
            if left:
                more = len(left) > 1 or end != "whole"
                return {"type": "http.request", "body": left.pop(0), "more_body": more}
            if end == "gone":
                return {"type": "http.disconnect"}
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": f"/api/v1/topics/{topic}/messages",
            "query_string": query,
            "headers": list(headers),
            "client": ("127.0.0.1", 9),
        }
        await self.path(scope, receive, send, topic)  # type: ignore[arg-type]  # this test's own ends
        if not sent:
            return 0, {}
        return sent[0]["status"], json.loads(b"".join(part.get("body", b"") for part in sent[1:]))

    async def stored(self) -> list[str]:
        """What can be read now, without waiting for anything."""
        if self.broker.store.topic_json("t") is None:
            return []
        request = PullRequest("t", 0, 0, False, 1_000, 1 << 22, 0, "*", "", None, None)
        _, messages = await self.broker.pull.pull(request)
        return [message["body"] for message in json.loads(messages)]

    def holds_nothing(self) -> bool:
        admission = self.broker.admission
        return (admission.inflight, admission.parsing_bytes, self.broker.bulk.queued) == (0, 0, 0)

    def timed(self) -> dict[str, int]:
        return {
            name: sum(one.counts) for name, one in self.broker.metrics.latency_ms.items() if any(one.counts)
        }


def run(
    path: Path, scenario: Callable[[Posting], Awaitable[None]], slow: int = 60_000, **limits: Any
) -> None:
    async def main() -> None:
        store = StoreSettings(path=str(path), commitlog_file_size=4 << 20, index_slots=100, index_entries=200)
        given = {
            "inline_bytes": INLINE,
            "max_request_bytes": MOST,
            "max_message_bytes": MESSAGE_MOST,
            "body_timeout_s": 60,
            **limits,
        }
        broker = Broker(
            BrokerSettings(store=store, limits=LimitSettings(disk_full_ratio=1, **given)),
            "core://here",
            ("127.0.0.1", 9),
        )
        try:
            posting = Posting(broker, slow)
            await asyncio.wait_for(scenario(posting), 60)
            assert posting.holds_nothing()
        finally:
            await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("chunks", [1, 7])
def test_what_a_group_sends_back_is_taken_beyond_a_limit_that_was_lowered(
    tmp_path: Path, chunks: int
) -> None:
    async def scenario(posting: Posting) -> None:
        message = b"x" * (MOST + (128 << 10))
        parts = [message[at::chunks] for at in range(chunks)]
        for topic, wanted in (("t", 413), ("%RETRY%g", 200), ("%DLQ%g", 200)):
            assert (await posting.post(parts, TEXT, topic=topic))[0] == wanted
        announced = length(RETURNED + 1)
        assert (await posting.post(None, TEXT, EXPECT, announced, topic="%RETRY%g"))[0] == 413

    run(tmp_path, scenario)


BROKEN = b"{" + b" " * 90_000
BOMB = gzip.compress(b" " * (MOST + 1))


@pytest.mark.parametrize(
    ("chunks", "headers", "query", "end", "status", "code"),
    [
        ([b"{"], [JSON], b"", "whole", 400, "MALFORMED_BODY"),
        ([b"{" + b" " * INLINE], [JSON], b"", "whole", 400, "MALFORMED_BODY"),
        (
            [BROKEN[:60_000], BROKEN[60_000:]],
            [JSON, length(len(BROKEN))],
            b"",
            "whole",
            400,
            "MALFORMED_BODY",
        ),
        ([b"not gzip"], [JSON, GZIP], b"", "whole", 400, "MALFORMED_BODY"),
        ([BOMB], [JSON, GZIP], b"", "whole", 413, "REQUEST_TOO_LARGE"),
        ([b"x" * (MESSAGE_MOST + 1)], [TEXT], b"", "whole", 413, "MESSAGE_TOO_LARGE"),
        ([b"x" * 70_000] * 4, [JSON], b"", "whole", 413, "REQUEST_TOO_LARGE"),
        (None, [TEXT, EXPECT, length(MESSAGE_MOST + 1)], b"", "whole", 413, "MESSAGE_TOO_LARGE"),
        (None, [JSON, EXPECT, length(MOST + 1)], b"", "whole", 413, "REQUEST_TOO_LARGE"),
        (None, [JSON, EXPECT], b"results=all", "whole", 422, "ARGUMENT_ILLEGAL"),
        ([b"x"], [JSON, (b"content-encoding", b"br")], b"", "whole", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ([b'{"body":"x","colour":1}'], [JSON], b"", "whole", 422, "MESSAGE_ILLEGAL"),
        ([b'{"body":"x","colour":1}'.ljust(INLINE + 1)], [JSON], b"", "whole", 422, "MESSAGE_ILLEGAL"),
        ([b'{"body":"x","queue_id":99}'], [JSON], b"", "whole", 404, "QUEUE_NOT_EXIST"),
        ([b"x" * 70_000], [JSON], b"", "gone", 0, None),
        ([b"x" * 70_000], [JSON], b"", "slow", 408, "REQUEST_TIMEOUT"),
    ],
)
def test_a_refusal_stores_nothing_and_gives_back_what_it_took(
    tmp_path: Path,
    chunks: list[bytes] | None,
    headers: list[Header],
    query: bytes,
    end: str,
    status: int,
    code: str | None,
) -> None:
    async def scenario(posting: Posting) -> None:
        found, problem = await posting.post(chunks, *headers, query=query, end=end)
        assert (found, problem.get("code")) == (status, code)
        assert posting.holds_nothing()
        assert await posting.stored() == []
        assert posting.broker.metrics.errors == ({code: 1} if code else {})
        assert posting.timed() == {}, "a refusal is not a send's time"

    run(tmp_path, scenario, body_timeout_s=0.05 if end == "slow" else 60)


def failing(error: Exception) -> Callable[..., Any]:
    def append(*_: object, **__: object) -> Any:
        raise error

    return append


@pytest.mark.parametrize("size", [len(KEEP), INLINE + 1])
def test_an_error_of_the_store_gives_back_what_the_send_took(tmp_path: Path, size: int) -> None:
    """A key of another request, a full disk, a store that takes nothing more, and a defect."""

    async def scenario(posting: Posting) -> None:
        key = (b"idempotency-key", b"k")
        body = KEEP.ljust(size)
        assert (await posting.post([body], JSON, key))[0] == 200
        status, problem = await posting.post([body.replace(b'"x"', b'"y"')], JSON, key)
        assert (status, problem["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
        assert posting.holds_nothing()
        kinds = posting.broker.send._append_kind  # noqa: SLF001 - its store fails
        for error, code in (
            (Unavailable("DISK_FULL", "full"), (507, "DISK_FULL")),
            (Closed("STORE_POISONED", "fsync failed"), (503, "STORE_POISONED")),
            (RuntimeError("a defect"), (500, "SYSTEM_ERROR")),
        ):
            kinds[PayloadKind.JSON] = failing(error)
            status, problem = await posting.post([body], JSON)
            assert (status, problem["code"]) == code
            assert posting.holds_nothing()
        assert await posting.stored() == ["x"]

    run(tmp_path, scenario)


def test_another_parameter_is_refused_with_the_name_of_the_one_there_is(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        _, problem = await posting.post(None, JSON, EXPECT, query=b"results=all")
        assert (problem["code"], problem["errors"][0]["parameter"]) == ("ARGUMENT_ILLEGAL", "results")

    run(tmp_path, scenario)


def test_what_is_turned_away_is_not_read(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        broker = posting.broker
        broker.admission.enter()
        assert (await posting.post(None, JSON, EXPECT))[1]["code"] == "SYSTEM_BUSY"
        assert not posting.path.fast_path(Connection(), "t", [JSON], KEEP)
        broker.admission.leave()
        broker.admission.dispatch_failure = "no descriptor left"
        assert (await posting.post(None, JSON, EXPECT))[1]["code"] == "SERVICE_NOT_AVAILABLE"
        assert not posting.path.fast_path(Connection(), "t", [JSON], KEEP)
        broker.admission.dispatch_failure = None
        assert await posting.stored() == []
        assert (await posting.post([KEEP], JSON))[0] == 200

    run(tmp_path, scenario, max_inflight_sends=1)


def test_a_body_that_waited_too_long_for_a_thread_is_refused_and_gives_back_what_it_took(
    tmp_path: Path,
) -> None:
    async def scenario(posting: Posting) -> None:
        body = b'{"body":"%s"}' % (b"x" * 1_900)
        assert (await posting.post([body], JSON))[1]["code"] == "SYSTEM_BUSY"
        assert posting.holds_nothing()
        assert await posting.stored() == []

    run(tmp_path, scenario, send_queue_wait_s=0)


def test_small_sends_are_answered_while_a_large_one_is_parsed(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        bulk = posting.broker.bulk
        go_on = threading.Event()
        holding = asyncio.ensure_future(bulk.run(go_on.wait))
        large = asyncio.ensure_future(posting.post([KEEP.ljust(INLINE + 1)], JSON))
        try:
            await wait_until_async(lambda: bulk.queued == 2)
            fast = Connection()
            assert (await posting.post([KEEP], JSON))[0] == 200
            assert posting.path.fast_path(fast, "t", [JSON], KEEP)
            await wait_until_async(lambda: bool(fast.answers))
            assert not large.done()
            assert await posting.stored() == ["x", "x"]
        finally:
            go_on.set()
        assert (await large)[0] == 200
        assert await holding
        assert await posting.stored() == ["x"] * 3

    run(tmp_path, scenario, bulk_threads=1)


def test_a_client_that_has_the_answer_reads_the_message_at_once(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        sent: list[str] = []
        for n in range(60):
            text = f"{n}:" + "x" * (INLINE * (n % 2))
            body = json.dumps({"body": text, "queue_id": 0}).encode()
            half = len(body) // 2
            chunks = [body] if n % 3 else [body[:half], body[half:]]
            assert (await posting.post(chunks, JSON))[0] == 200
            sent.append(text)
            assert await posting.stored() == sent

    run(tmp_path, scenario)


def test_a_body_at_its_limit_is_taken_and_the_loop_parses_only_small_ones(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        kept = [KEEP.ljust(INLINE), KEEP.ljust(INLINE + 1), KEEP.ljust(MOST)]
        assert (await posting.post([kept[0]], JSON))[0] == 200
        assert posting.timed() == {"send": 1}
        assert (await posting.post([kept[1]], JSON))[0] == 200
        assert (await posting.post([gzip.compress(KEEP)], JSON, GZIP))[0] == 200
        assert posting.timed() == {"send": 1, "bulk_send": 2}
        at_most = [kept[2][:100_000], kept[2][100_000:]]
        assert (await posting.post(at_most, JSON, length(MOST)))[0] == 200
        message = [b"x" * MESSAGE_MOST]
        queue = (b"x-lakemq-queue-id", b"0")
        assert (await posting.post(message, TEXT, queue, length(MESSAGE_MOST)))[0] == 200
        packed = gzip.compress(b"x")
        assert (await posting.post([packed], TEXT, GZIP, queue, length(len(packed))))[0] == 200
        assert await posting.stored() == ["x"] * 4 + ["x" * MESSAGE_MOST, "x"]

    run(tmp_path, scenario)


def test_a_key_and_the_kind_of_results_are_the_requests(tmp_path: Path) -> None:
    async def scenario(posting: Posting) -> None:
        key = (b"idempotency-key", b"k")
        two = b'{"messages":[{"body":"x","queue_id":0},{"body":"y","queue_id":0}]}'
        _, full = await posting.post([two], JSON, key, query=b"results=full")
        assert len(full["results"]) == 2
        status, again = await posting.post([two], JSON, key, query=b"results=queues")
        assert (status, again["duplicate"]) == (200, True)
        for query in (b"", b"results=queues"):
            _, queues = await posting.post([two], JSON, query=query)
            assert not queues.get("results")
        fast = Connection()
        assert posting.path.fast_path(fast, "t", [JSON, key], two)
        assert b'"duplicate":true' in fast.answers[0].replace(b" ", b"")
        metrics = posting.broker.metrics
        assert (metrics.duplicates, metrics.topics_in["t"].messages) == (2, 6)
        assert await posting.stored() == ["x", "y"] * 3

    run(tmp_path, scenario)


def test_a_slow_send_has_a_line_and_a_quick_one_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(posting: Posting) -> None:
        await posting.post([KEEP], JSON)
        connection = Connection()
        assert posting.path.fast_path(connection, "t", [JSON], KEEP)
        await wait_until_async(lambda: bool(connection.answers))

    with caplog.at_level(logging.INFO, "lakemq.access"):
        run(tmp_path / "quick", scenario)
        assert not caplog.records
        run(tmp_path / "slow", scenario, slow=0)
    assert len(caplog.records) == 2
    for record in caplog.records:
        fields: dict[str, Any] = record.fields  # type: ignore[attr-defined]  # as our own log lines have
        assert (fields["method"], fields["path"]) == ("POST", "/api/v1/topics/t/messages")
        assert (fields["status"], fields["code"]) == (200, "SLOW")
        assert "127.0.0.1" in str(fields["client"])
        assert 0 <= fields["took_ms"] < 60_000


class Connection:
    """The connection of a send on the fast path; one that is broken cannot take an answer."""

    client = ("127.0.0.1", 9)

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken
        self.answers: list[bytes] = []
        self.waits = 0
        self.closed = False

    def wait(self) -> None:
        self.waits += 1

    def answer(self, head: bytes, body: bytes) -> None:
        if self.broken:
            raise RuntimeError("a defect")
        self.answers.append(head + body)

    def close(self) -> None:
        self.closed = True


def fast(sends: HeldSends) -> SendPath:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(30, loop.time, loop.call_at)
    bodies = BodyReader(deadlines, sends.admission, sends.limits.max_request_bytes)
    return SendPath(sends.service, bodies, sends.metrics, ErrorResponses(sends.metrics, 60_000), sends.limits)


def test_the_fast_path_takes_a_body_at_its_limit_and_leaves_the_rest_unstored(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        path = fast(sends)
        end = sends.store.watermarks()[0]
        assert not path.fast_path(Connection(), "t", [JSON], KEEP.ljust(INLINE + 1))
        assert not path.fast_path(Connection(), "t", [JSON, GZIP], KEEP)
        assert not path.fast_path(Connection(), "t", [JSON], b"{")
        assert sends.store.watermarks()[0] == end
        assert sends.admission.inflight == 0
        assert path.fast_path(Connection(), "t", [JSON], KEEP.ljust(INLINE))
        assert path.fast_path(Connection(), "t", [TEXT], b"raw")
        assert sends.admission.inflight == 2

    run_held(tmp_path, scenario)


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    ("outcome", "head", "word"),
    [
        (True, b"HTTP/1.1 200 ", b"SEND_OK"),
        (False, b"HTTP/1.1 202 ", b"FLUSH_DISK_TIMEOUT"),
        (Closed("STORE_POISONED", "fsync failed"), b"HTTP/1.1 503 ", b"STORE_POISONED"),
    ],
)
def test_a_send_that_waited_is_answered_as_it_ended_or_its_connection_closed(
    tmp_path: Path, outcome: bool | Closed, head: bytes, word: bytes, broken: bool
) -> None:
    async def scenario(sends: HeldSends) -> None:
        connection = Connection(broken)
        began = time.perf_counter()
        assert fast(sends).fast_path(connection, "t", [JSON], KEEP)
        assert (connection.waits, connection.answers) == (1, [])
        assert sends.flush.notify is not None
        await asyncio.sleep(0.02)  # the time that is measured
        sends.flush.notify(outcome)
        assert sends.admission.inflight == 0
        assert connection.closed == broken
        if not broken:
            (answer,) = connection.answers
            assert answer.startswith(head)
            assert word in answer
            times = sum(sends.metrics.latency_ms["send"].counts)
            assert times == (0 if isinstance(outcome, Closed) else 1)
            if times:
                most = (time.perf_counter() - began) * 1000
                assert 20 <= sends.metrics.latency_ms["send"].total <= most

    run_held(tmp_path, scenario)


def test_a_stored_send_that_cannot_be_answered_is_not_stored_again(tmp_path: Path) -> None:
    async def scenario(sends: HeldSends) -> None:
        path = fast(sends)
        connection = Connection(broken=True)
        one_way = (b"prefer", b"respond-async")
        assert path.fast_path(connection, "t", [JSON, one_way], KEEP), "the slow path would store it again"
        assert connection.closed

        def poisoned(end_offset: int, notify: object) -> None:
            raise Closed("STORE_POISONED", "fsync failed")

        sends.flush.on_durable = poisoned  # type: ignore[method-assign]  # known before it waits
        refused = Connection()
        assert path.fast_path(refused, "t", [JSON], KEEP)
        assert refused.answers[0].startswith(b"HTTP/1.1 503 ")
        assert sends.admission.inflight == 0

    run_held(tmp_path, scenario)
