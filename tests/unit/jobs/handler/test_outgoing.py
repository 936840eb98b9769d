"""What a verdict sends: plain and checked; what passes is taken by a store, what does not pass is not."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.table import OUTBOX
from jobs.handler.invocation import HandlerHost, invoke_here
from jobs.handler.isolated_handler import IsolatedHandler
from jobs.handler.loader import HandlerTarget, LoadedHandler
from jobs.handler.opened_handler import OpenedHandler
from jobs.handler.outgoing import MOST_BYTES, MOST_MESSAGES, plain_messages
from jobs.handler.results import HandlerResults, concat
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq.client.arrow import encode
from lakemq.handler import Outgoing, Verdict, vectorised
from store_native import Store
from store_native.errors import LakeMQError
from tests.support.stores import open_store

POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 16)
PLAIN = Outgoing("invoices", b"body")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with contextlib.closing(open_store(tmp_path_factory.mktemp("store"), auto_create_topics=True)) as store:
        yield store


def is_stored(store: Store, plain: dict[str, Any]) -> bool:
    """Whether a store takes the message, in the form in which a job sends it."""
    column = pa.array([[plain | {"message_id": "A" * 32}]], OUTBOX).flatten()
    fields = [field.name for field in OUTBOX.value_type if field.name != "topic"]
    rows = pa.RecordBatch.from_arrays([column.field(name) for name in fields], names=fields)
    try:
        store.append_arrow(plain["topic"], encode(rows))
    except LakeMQError:
        return False
    return True


@pytest.mark.parametrize(
    "message",
    [
        PLAIN,
        Outgoing("invoices", "text with \n a line"),
        Outgoing("invoices", {"order": 17, "note": "ü"}),
        Outgoing("invoices", [1, 2]),
        Outgoing("invoices", b"\xff\x00"),
        replace(PLAIN, tags="created & paid*", keys=["17", "a-b"], sharding_key="17", delay_level=18),
        replace(PLAIN, tags="", sharding_key="", keys="one"),
        replace(PLAIN, delay_level=99, properties={"traceparent": "00-1", "RETRY_TOPIC": "t", "Tags": "x"}),
        replace(PLAIN, properties={"LMQ_CAUSE": "another's", "LMQ_CAUSE_GROUP": "g"}),
    ],
    ids=repr,
)
def test_what_passes_is_taken_by_a_store(store: Store, message: Outgoing) -> None:
    (plain,) = plain_messages([message])
    assert is_stored(store, plain)


NO_MESSAGE = [
    replace(PLAIN, body=b""),
    replace(PLAIN, keys=[""]),
    replace(PLAIN, keys=["a b"]),
    replace(PLAIN, keys=["a\u3000b"]),
    replace(PLAIN, keys=["a\x01"]),
    replace(PLAIN, tags="a\x02b"),
    *(replace(PLAIN, tags=tags) for tags in ("a||b", "a|b", "a && b", " a", "a\u3000", " ", "*")),
    replace(PLAIN, sharding_key="\x7f"),
    replace(PLAIN, properties={"": "v"}),
    replace(PLAIN, properties={"n": ""}),
    replace(PLAIN, properties={"n": "a\nb"}),
    replace(PLAIN, properties={"__LMQ_KEY": "v"}),
    replace(PLAIN, delay_level=-1),
    *(
        replace(PLAIN, properties={name: "v"})
        for name in ("KEYS", "TAGS", "UNIQ_KEY", "DELAY", "REAL_TOPIC", "PGROUP", "__SHARDINGKEY", "__CRC32#")
    ),
]


@pytest.mark.parametrize("message", NO_MESSAGE, ids=repr)
def test_what_a_store_does_not_take_is_refused_before(store: Store, message: Outgoing) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        plain_messages([message])
    fields = {name: getattr(message, name) for name in Outgoing.__dataclass_fields__}
    properties = [*message.properties.items()]
    assert not is_stored(store, fields | {"properties": properties})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"body": 7}, "a body is bytes, a text, a mapping or a list, not int"),
        ({"body": "\ud800"}, "half a character"),
        ({"body": {"x": float("nan")}}, "Out of range float"),
        ({"tags": 7}, "tags is a text, not int"),
        ({"keys": [7]}, "a key is a text, not int"),
        ({"properties": {"n": 7}}, "a property's value is a text, not int"),
        ({"topic": None}, "a topic is a text, not NoneType"),
        ({"delay_level": "1"}, "integer"),
    ],
)
def test_what_is_no_message_is_refused_with_its_reason(fields: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        plain_messages([replace(PLAIN, **fields)])
    with pytest.raises(TypeError, match="a verdict sends Outgoing, not str"):
        plain_messages(["a text"])


def test_a_verdict_sends_so_many_messages_and_bytes_at_most() -> None:
    assert len(plain_messages([PLAIN] * MOST_MESSAGES)) == MOST_MESSAGES
    with pytest.raises(ValueError, match="sends 100 messages at most, not 101"):
        plain_messages([PLAIN] * (MOST_MESSAGES + 1))
    half = Outgoing("t", b"x" * (MOST_BYTES // 2 - 1))
    assert len(plain_messages([half, half])) == 2
    with pytest.raises(ValueError, match="4,194,304 bytes at most, not 4,194,307"):
        plain_messages([half, half, Outgoing("t", b"xx")])


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array([b"%d" % i for i in range(rows)], pa.binary())})


def results(function: Any, rows: int = 3, *, is_vectorised: bool = False) -> HandlerResults:
    loaded = LoadedHandler(function, is_vectorised, is_async=inspect.iscoroutinefunction(function))
    opened = OpenedHandler(loaded)
    try:
        return invoke_here(opened, batch(rows), POLICY, host=HandlerHost(concurrency=1))
    finally:
        opened.close()


def sent(result: HandlerResults) -> list[tuple[str, list[bytes] | None]]:
    """Verdict and bodies of each row."""
    assert result.verdict is not None
    outbox = [None] * result.rows if result.outbox is None else result.outbox.to_pylist()
    bodies = [None if messages is None else [message["body"] for message in messages] for messages in outbox]
    return list(zip(result.verdict.to_pylist(), bodies, strict=True))


def copy_but_the_first(message: Any) -> Verdict | None:
    """A handler that sends on what it got."""
    if message.body == b"0":
        return None
    return Verdict.ack(send=(Outgoing("copies", message.body * n) for n in (1, 2)))


WANTED = [("ACK", None), ("ACK", [b"1", b"11"]), ("ACK", [b"2", b"22"])]


def test_a_handler_of_messages_sends_with_its_verdict() -> None:
    assert sent(results(copy_but_the_first)) == WANTED


def test_a_coroutine_sends_with_its_verdict() -> None:
    async def handle(message: Any) -> Verdict | None:
        await asyncio.sleep(0)
        return copy_but_the_first(message)

    assert sent(results(handle)) == WANTED


def test_a_handler_in_a_process_of_its_own_sends_with_its_verdict() -> None:
    handler = IsolatedHandler(HandlerTarget(f"{__name__}:copy_but_the_first"), POLICY, 2, 60.0)
    try:
        assert sent(handler.call_rows(batch(3))) == WANTED
    finally:
        handler.close()


def test_a_handler_of_batches_sends_with_a_verdict_for_each_message() -> None:
    one = Outgoing("copies", b"x")

    def handle(rows: pa.RecordBatch) -> list[Any]:
        return [None, Verdict.ack(send=one), "RETRY"][: rows.num_rows]

    assert sent(results(handle, is_vectorised=True)) == [("ACK", None), ("ACK", [b"x"]), ("RETRY", None)]


@vectorised
def one_for_all(rows: pa.RecordBatch) -> Verdict:
    """A handler of batches with one verdict that sends."""
    return Verdict.ack(send=Outgoing("copies", b"x"))


def test_one_verdict_for_a_batch_sends_nothing_and_says_so() -> None:
    result = results(one_for_all, is_vectorised=True)
    assert sent(result) == [("RETRY", None)] * 3
    assert result.error_text is not None
    assert "return a list, a verdict for each" in result.error_text[0].as_py()


@pytest.mark.parametrize("kind", ["RETRY", "DEAD"])
def test_only_a_verdict_that_acknowledges_sends(kind: str) -> None:
    result = results(lambda message: Verdict(kind, send=(PLAIN,)))
    assert sent(result) == [("RETRY", None)] * 3
    assert result.error_text is not None
    assert result.error_text[0].as_py() == f"only a verdict that acknowledges sends messages, not {kind}"


def test_what_no_broker_takes_is_an_error_of_its_own_call() -> None:
    def handle(message: Any) -> Verdict:
        return Verdict.ack(send=Outgoing("copies", b"" if message.body == b"1" else b"x"))

    result = results(handle)
    assert sent(result) == [("ACK", [b"x"]), ("RETRY", None), ("ACK", [b"x"])]
    assert result.error_text is not None
    assert "has a body, and it is not empty" in result.error_text[1].as_py()


def test_results_with_and_without_messages_are_joined() -> None:
    parts = [
        results(lambda message: None),
        results(copy_but_the_first),
        results(lambda message: Verdict.RETRY),
    ]
    assert sent(concat(parts)) == [("ACK", None)] * 3 + WANTED + [("RETRY", None)] * 3
