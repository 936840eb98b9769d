"""A handler in a process of its own: what dies or hangs is blamed alone, and every message has a verdict."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.handler.batch_calls import Before, handle_batch
from jobs.handler.call_order import CallOrder
from jobs.handler.isolated_handler import IsolatedHandler
from jobs.handler.loader import HandlerTarget
from jobs.handler.narrowing import failures_allowed
from jobs.handler.results import HandlerResults
from jobs.redelivery.retry_policy import RetryPolicy
from store_native.errors import InvalidRequest
from tests.support.waiting import wait_until

POLICY = RetryPolicy.of("10s 30s", [1_000, 10_000, 30_000, 60_000], 16)
HANDLERS = "tests.unit.jobs.handler.handlers_that_end"


def batch(bodies: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})


def isolated(
    name: str, concurrency: int = 4, timeout_s: float = 60.0, memory: int | None = None
) -> IsolatedHandler:
    return IsolatedHandler(HandlerTarget(f"{HANDLERS}:{name}"), POLICY, concurrency, timeout_s, memory)


@pytest.fixture
def handler() -> Iterator[IsolatedHandler]:
    handler = isolated("dies")
    yield handler
    handler.close()


def said(results: HandlerResults) -> list[tuple[str, str | None]]:
    assert results.verdict is not None
    assert results.reason is not None
    return list(zip(results.verdict.to_pylist(), results.reason.to_pylist(), strict=True))


def test_only_the_messages_that_end_their_process_are_blamed(handler: IsolatedHandler) -> None:
    bodies = [b"a", b"exit", b"b", b"signal", b"raise", b"dead", *[b"c"] * 20, b"exit"]
    results = handler.call_rows(batch(bodies))
    verdicts = said(results)
    assert verdicts[1] == verdicts[26] == ("RETRY", "worker died (exit status 7)")
    assert verdicts[3] == ("RETRY", "worker died (signal 11)")
    assert verdicts[4] == ("RETRY", None)
    assert results.error_type is not None
    assert results.error_type[4].as_py() == "ValueError"
    assert verdicts[5] == ("DEAD", "as it was told to")
    assert [verdict for verdict, _ in verdicts].count("ACK") == 22
    started = results.started_at.cast(pa.int64()).to_pylist()
    finished = results.finished_at.cast(pa.int64()).to_pylist()
    assert all(0 < begin <= end for begin, end in zip(started, finished, strict=True))


@pytest.mark.parametrize(
    ("bad", "reason"), [(b"kill", "worker died (signal 9)"), (b"deep", "worker died (signal 11)")]
)
def test_a_process_that_the_system_ends_is_said_by_its_signal(
    handler: IsolatedHandler, bad: bytes, reason: str
) -> None:
    results = handler.call_rows(batch([b"a", b"b", bad, b"c"]))
    assert said(results) == [("ACK", None), ("ACK", None), ("RETRY", reason), ("ACK", None)]
    assert results.error_type is not None
    assert results.error_type.to_pylist() == [None, None, "WorkerDied", None]
    assert results.error_text is not None
    assert results.error_text.to_pylist() == [None, None, reason, None]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is looked at where Linux says it")
@pytest.mark.parametrize("name", ["eats", "batch_eats"])
def test_the_message_that_needs_more_memory_than_there_may_be_is_blamed_alone(name: str) -> None:
    handler = isolated(name, memory=400 << 20)
    try:
        bodies = batch([b"1", b"1", b"900", b"1"])
        results = (
            handler.call_rows(bodies)
            if name == "eats"
            else handle_batch(bodies, handler.call_batch, Before.nothing(4))
        )
    finally:
        handler.close()
    too_much = ("RETRY", "worker died (more than 400 MiB in memory)")
    assert said(results) == [("ACK", None), ("ACK", None), too_much, ("ACK", None)]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is looked at where Linux says it")
def test_a_process_that_is_killed_before_it_calls_anything_is_held_against_no_message() -> None:
    handler = isolated("dies", memory=1 << 20)  # what Python itself takes is more
    try:
        results = handler.call_rows(batch([b"a", b"b", b"c"]))
    finally:
        handler.close()
    assert said(results) == [("RETRY", "worker died (more than 1 MiB in memory)")] * 3
    assert results.in_company is not None
    assert results.in_company.to_pylist() == [True] * 3, "their attempts do not count"


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="it is Linux's")
def test_where_memory_is_short_the_process_is_the_first_to_go() -> None:
    handler = isolated("says_who_is_first_to_go")
    try:
        assert said(handler.call_rows(batch([b"a"]))) == [("DEAD", "1000")]
    finally:
        handler.close()


def test_a_process_serves_one_batch_after_the_other(handler: IsolatedHandler) -> None:
    assert handler.call_rows(batch([b"a", b"b"])).verdict is None
    process = handler._process  # noqa: SLF001 - that it is the same one
    assert handler.call_rows(batch([b"c"])).verdict is None
    assert process is not None
    assert handler._process is process  # noqa: SLF001
    handler.close()
    assert process.poll() is not None


def test_a_call_that_hangs_is_killed_and_the_others_have_their_verdicts() -> None:
    handler = isolated("dies", concurrency=2, timeout_s=5.0)
    try:
        verdicts = said(handler.call_rows(batch([b"hang", b"a", b"b", b"hang", b"c"])))
    finally:
        handler.close()
    late = ("RETRY", "the handler did not return within 5 s (consume timeout)")
    assert verdicts == [late, ("ACK", None), ("ACK", None), late, ("ACK", None)]


@pytest.mark.long
@pytest.mark.parametrize("name", ["holds_the_interpreter", "holds_the_loop"])
def test_a_call_that_lets_no_other_go_on_is_blamed_alone(name: str) -> None:
    handler = isolated(name, concurrency=4, timeout_s=5.0)
    try:
        verdicts = said(handler.call_rows(batch([b"a", b"b", b"hang", b"c", b"d"])))
    finally:
        handler.close()
    late = ("RETRY", "the handler did not return within 5 s (consume timeout)")
    assert verdicts == [("ACK", None), ("ACK", None), late, ("ACK", None), ("ACK", None)]


@pytest.mark.long
def test_a_handler_that_ends_its_process_whatever_it_gets_is_not_called_for_each(
    handler: IsolatedHandler,
) -> None:
    heads = 400
    lanes = [(row, row + heads) if row < 100 else (row,) for row in range(heads)]
    results = handler.call_rows(batch([b"exit"] * 500), CallOrder(tuple(lanes)))
    assert results.in_company is not None
    alone = results.in_company.to_pylist()[:heads].count(False)
    assert 0 < alone <= failures_allowed(500) + 4
    verdicts = [verdict for verdict, _ in said(results)]
    assert verdicts == ["RETRY"] * heads + ["PARKED"] * 100


@pytest.mark.long
def test_a_loop_that_is_held_by_what_is_no_call_holds_its_batch_for_the_time_of_a_call() -> None:
    """No row has begun then: nothing else would end it."""
    with closing(isolated("leaves_the_loop_held", timeout_s=1.0)) as handler:
        assert handler.call_rows(batch([b"holds"])).verdict is None
        threading.Event().wait(0.4)
        assert handler.call_rows(batch([b"a", b"b"])).verdict is None, "by another process"


@pytest.mark.long
def test_a_process_ends_with_its_worker_though_a_thread_of_its_handler_goes_on(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    calls = (
        "import os, sys, threading\n"
        "from tests.unit.jobs.handler.test_isolated_handler import batch, isolated\n"
        "handler, rows = isolated('waits_on_a_thread'), batch([sys.argv[1].encode()])\n"
        "threading.Thread(target=handler.call_rows, args=[rows], daemon=True).start()\n"
        "while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read(): pass\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", calls, str(pid_file)], check=True, timeout=60)
    process = Path(f"/proc/{pid_file.read_text()}")
    wait_until(lambda: not process.exists(), 20.0)


@pytest.mark.long
def test_a_call_that_is_made_again_alone_has_its_own_start(tmp_path: Path) -> None:
    with closing(isolated("dies_late")) as handler:
        results = handler.call_rows(batch([b"", str(tmp_path / "mark").encode()]))
    assert said(results)[1] == ("RETRY", "worker died (exit status 7)")
    started, finished = (at.cast(pa.int64())[1].as_py() for at in (results.started_at, results.finished_at))
    assert finished - started < 900_000, "less than the first call took"


def test_the_end_of_a_process_is_said(handler: IsolatedHandler, capfd: pytest.CaptureFixture[str]) -> None:
    handler.call_rows(batch([b"exit"]))
    said_once = (
        "lakemq: the handler's process ended: worker died (exit status 7); 1 call under way made again"
    )
    assert said_once in capfd.readouterr().err


def test_a_process_that_ended_between_two_batches_is_started_again(handler: IsolatedHandler) -> None:
    assert handler.call_rows(batch([b"a"])).verdict is None
    process = handler._process  # noqa: SLF001 - it dies
    assert process is not None
    process.kill()
    process.wait()
    assert handler.call_rows(batch([b"b", b"c"])).verdict is None


@pytest.mark.parametrize(
    ("bad", "reason", "timeout_s"),
    [
        (b"exit", "worker died (exit status 7)", 60.0),
        pytest.param(
            *(b"hang", "the handler did not return within 5 s (consume timeout)", 5.0), marks=pytest.mark.long
        ),
    ],
)
def test_a_batch_is_halved_until_the_message_that_ends_the_process_stands_alone(
    bad: bytes, reason: str, timeout_s: float
) -> None:
    handler = isolated("batch_dies", timeout_s=timeout_s)
    try:
        results = handle_batch(batch([b"a", b"b", bad, b"c"]), handler.call_batch, Before.nothing(4))
    finally:
        handler.close()
    assert said(results) == [("ACK", None), ("ACK", None), ("RETRY", reason), ("ACK", None)]


def test_a_handler_that_cannot_be_opened_is_said() -> None:
    handler = isolated("Opened")  # without the variable it wants
    with pytest.raises(InvalidRequest, match="did not get ready: KeyError: 'HANDLER_NOTES'"):
        handler.call_rows(batch([b"a"]))


def test_a_lane_ends_at_the_message_that_ends_its_process(handler: IsolatedHandler) -> None:
    bodies = [b"a", b"exit", b"b", b"c", b"raise", b"d", b"dead", b"e"]
    order = CallOrder(((0, 1, 2), (3, 4, 5), (6, 7)))
    verdicts = [verdict for verdict, _ in said(handler.call_rows(batch(bodies), order))]
    assert verdicts == ["ACK", "RETRY", "PARKED", "ACK", "RETRY", "PARKED", "DEAD", "ACK"]


def test_a_lane_goes_on_behind_what_is_given_up(handler: IsolatedHandler) -> None:
    order = CallOrder(((0, 1), (2, 3)), frozenset({0, 2}))
    results = handler.call_rows(batch([b"exit", b"a", b"raise", b"b"]), order)
    assert [verdict for verdict, _ in said(results)] == ["RETRY", "ACK", "RETRY", "ACK"]


def test_a_handler_may_take_as_long_to_open_as_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.handler.isolated_handler._READY_S", 0.1)
    with closing(isolated("OpensSlowly", timeout_s=60.0)) as handler:
        assert handler.call_rows(batch([b"a"])).verdict is None
    with (
        closing(isolated("OpensSlowly", timeout_s=0.2)) as handler,
        pytest.raises(InvalidRequest, match=r"did not get ready: not ready within 0\.2 s"),
    ):
        handler.call_rows(batch([b"a"]))
