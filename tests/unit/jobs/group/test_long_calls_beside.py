"""Rows of `deliveries` for a call that goes on in a process beside Spark's worker."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from jobs.group.orderly.lane import Attempt, Lane
from jobs.group.orderly.lane_gate import LaneRules
from jobs.handler.invocation import HandlerHost
from jobs.handler.isolated_handler import isolated
from jobs.handler.loader import HandlerTarget
from jobs.handler.row_calls import TICK_S
from jobs.handler.verdicts import GOES_ON
from lakemq.handler import DeliveredMessage, Verdict
from tests.support.long_calls import DEADLINE_S, again, rows_of
from tests.support.outcome_rows import POLICY, keyed, message

BESIDE = HandlerHost(concurrency=4, isolation="process")
pytestmark = pytest.mark.long


def waits(delivered: DeliveredMessage) -> Verdict | None:
    """Notes its call; ends its process, or takes until it is let go, where the message says so."""
    order = delivered.json()
    here = Path(order["here"])
    with (here / "calls").open("a") as calls:
        calls.write(f"{os.getpid()} {delivered.queue_offset}\n")
    if "dies" in order:
        os._exit(9)
    while "slow" in order and not (here / "let-go").exists():
        threading.Event().wait(0.02)
    return Verdict.dead("as it was let go") if "slow" in order else None


async def waits_on_loop(delivered: DeliveredMessage) -> None:
    """The same as a coroutine."""
    order = delivered.json()
    while "slow" in order and not (Path(order["here"]) / "let-go").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


WAITS = HandlerTarget(f"{__name__}:waits")
WAITS_ON_LOOP = HandlerTarget(f"{__name__}:waits_on_loop")


@pytest.fixture(autouse=True)
def a_process_of_its_own() -> Iterator[None]:
    yield
    for target in (WAITS, WAITS_ON_LOOP):
        isolated(target, POLICY, BESIDE.concurrency, BESIDE.timeout_s, None).close()
    isolated.cache_clear()


def sent(here: Path, offset: int, **order: Any) -> dict[str, Any]:
    return message(offset, {"here": str(here), **order})


def calls(here: Path) -> list[tuple[int, int]]:
    return [(int(pid), int(at)) for pid, at in map(str.split, (here / "calls").read_text().splitlines())]


def test_its_batch_does_not_wait_for_it_nor_does_the_next_one(tmp_path: Path) -> None:
    new = [sent(tmp_path, 0, slow=True), sent(tmp_path, 1)]
    row, other = rows_of(tmp_path / "known", WAITS, new, host=BESIDE)
    assert (row["reason"], row["started_at"], other["verdict"]) == (GOES_ON.reason, None, "ACK")
    row, other = rows_of(tmp_path / "known", WAITS, [again(row), sent(tmp_path, 2)], host=BESIDE)
    assert (row["reason"], other["verdict"]) == (GOES_ON.reason, "ACK")
    (tmp_path / "let-go").touch()
    (done,) = rows_of(tmp_path / "known", WAITS, [again(row)], host=BESIDE, limit_s=None)
    assert (done["verdict"], done["reason"], done["attempt"]) == ("DEAD", "as it was let go", 3)
    made = calls(tmp_path)
    assert [at for _, at in made] == [0, 1, 2]
    assert len({pid for pid, _ in made}) == 1, "one process, and not this one"
    assert made[0][0] != os.getpid()
    assert list((tmp_path / "known").iterdir()) == []


def test_in_orderly_mode_its_lane_waits_for_it(tmp_path: Path) -> None:
    new = [keyed(sent(tmp_path, 0, slow=True), "a"), keyed(sent(tmp_path, 1), "a"), sent(tmp_path, 2)]
    more: dict[str, Any] = {"host": BESIDE, "mode": "orderly"}
    rows = rows_of(tmp_path / "known", WAITS, new, lanes=LaneRules(), **more)
    assert [row["verdict"] for row in rows] == ["RETRY", "PARKED", "ACK"]
    (tmp_path / "let-go").touch()
    lanes = LaneRules({Lane("orders", "broker-a", 1, "a"): (Attempt(0, 2),)})
    second = [again(rows[0]), new[1]]
    rows = rows_of(tmp_path / "known", WAITS, second, lanes=lanes, limit_s=None, **more)
    assert [row["verdict"] for row in rows] == ["DEAD", "ACK"]
    assert [at for _, at in calls(tmp_path)] == [0, 2, 1]


def test_where_its_process_ends_it_is_made_anew_and_waited_for(tmp_path: Path) -> None:
    new = [sent(tmp_path, 0, slow=True), sent(tmp_path, 1)]
    row, _ = rows_of(tmp_path / "known", WAITS, new, host=BESIDE)
    ((process, _), _) = calls(tmp_path)
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    threading.Timer(2.0, (tmp_path / "let-go").touch).start()
    done, other = rows_of(tmp_path / "known", WAITS, [again(row), sent(tmp_path, 2)], host=BESIDE)
    assert (done["verdict"], done["attempt"], other["verdict"]) == ("DEAD", 2, "ACK")
    assert [at for _, at in calls(tmp_path)].count(0) == 2


def test_one_that_takes_longer_than_it_may_ends_the_process_and_is_a_failed_attempt(tmp_path: Path) -> None:
    short = replace(BESIDE, timeout_s=3.0)
    process = isolated(WAITS, POLICY, short.concurrency, short.timeout_s, None)
    try:
        new = [sent(tmp_path, 0, slow=True), sent(tmp_path, 1)]
        row, _ = rows_of(tmp_path / "known", WAITS, new, host=short)
        assert row["reason"] == GOES_ON.reason
        (failed,) = rows_of(tmp_path / "known", WAITS, [again(row)], host=short, limit_s=None)
        assert (failed["verdict"], failed["error_type"]) == ("RETRY", "ConsumeTimeout")
        (done,) = rows_of(tmp_path / "known", WAITS, [sent(tmp_path, 3)], host=short)
        assert done["verdict"] == "ACK", "by another process"
        assert len({pid for pid, _ in calls(tmp_path)}) == 2
    finally:
        process.close()


def test_one_that_goes_on_behind_the_death_of_another_is_known_by_its_own_message(tmp_path: Path) -> None:
    """What is left to call is fewer messages then."""
    new = [sent(tmp_path, 0, dies=True), sent(tmp_path, 1), sent(tmp_path, 2, slow=True), sent(tmp_path, 3)]
    died, done, row, other = rows_of(tmp_path / "known", WAITS, new, host=BESIDE, limit_s=4.0)
    assert (died["error_type"], row["reason"]) == ("WorkerDied", GOES_ON.reason)
    assert (done["verdict"], other["verdict"]) == ("ACK", "ACK")
    (tmp_path / "let-go").touch()
    (done,) = rows_of(tmp_path / "known", WAITS, [again(row)], host=BESIDE, limit_s=None)
    assert (done["verdict"], done["queue_offset"], done["attempt"]) == ("DEAD", 2, 2)
    assert [at for _, at in calls(tmp_path)].count(2) == 1


@pytest.mark.parametrize("target", [WAITS, WAITS_ON_LOOP])
def test_while_it_goes_on_its_process_says_nothing_that_nobody_reads(
    tmp_path: Path, target: HandlerTarget
) -> None:
    """The pipe would be full some day, and the call stand."""
    new = [sent(tmp_path, 0, slow=True), sent(tmp_path, 1)]
    row, _ = rows_of(tmp_path / "known", target, new, host=BESIDE)
    assert row["reason"] == GOES_ON.reason
    pipe = isolated(target, POLICY, BESIDE.concurrency, BESIDE.timeout_s, None)._pipe  # noqa: SLF001
    assert pipe is not None
    while pipe.poll(2 * TICK_S):  # the last one may be on its way
        pipe.recv()
        threading.Event().wait(TICK_S)
        assert not pipe.poll(2 * TICK_S)


async def holds_the_loop(delivered: DeliveredMessage) -> None:
    """Takes as long as the message says, and where it says so the loop waits for ever then."""
    order = delivered.json()
    await asyncio.sleep(order.get("takes_s", 0))
    if "holds" in order:
        threading.Event().wait()


def test_one_that_holds_the_loop_from_an_earlier_batch_takes_no_call_along(tmp_path: Path) -> None:
    """A single call under way is not the one that holds it."""
    target, short = HandlerTarget(f"{__name__}:holds_the_loop"), replace(BESIDE, timeout_s=3.0)
    known, process = tmp_path / "known", isolated(target, POLICY, short.concurrency, short.timeout_s, None)
    try:
        first = [sent(tmp_path, 9), sent(tmp_path, 0, takes_s=2.5, holds=True)]
        _, row = rows_of(known, target, first, host=short, limit_s=1.0)
        assert row["reason"] == GOES_ON.reason
        (innocent,) = rows_of(known, target, [sent(tmp_path, 1, takes_s=1.5)], host=short, limit_s=None)
        assert (innocent["verdict"], innocent["reason"]) == ("ACK", None)
    finally:
        process.close()


class Pool:
    """A handler whose slow call fails when it is closed under it."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._failed = threading.Event()

    def __call__(self, delivered: DeliveredMessage) -> None:
        """Takes until the pool is closed where the message says so and is not delivered again."""
        if "slow" in delivered.json() and delivered.attempt == 1:
            self._closed.wait()
            self._failed.set()
            raise ConnectionError("the pool is closed")

    def close(self) -> None:
        self._closed.set()
        self._failed.wait()
        threading.Event().wait(0.2)  # what the call says now is noted, if it is


def _work(pipe: Connection[Any, Any], known: Path, here: Path) -> None:
    new = [sent(here, 0, slow=True), sent(here, 1)]
    pipe.send(rows_of(known, HandlerTarget(f"{__name__}:Pool"), new, host=BESIDE)[0])


def test_what_it_says_when_its_worker_ends_is_not_believed(tmp_path: Path) -> None:
    start = multiprocessing.get_context("spawn")
    ours, theirs = start.Pipe(duplex=False)
    worker = start.Process(target=_work, args=(theirs, tmp_path / "known", tmp_path), daemon=True)
    worker.start()
    theirs.close()
    assert ours.poll(DEADLINE_S)
    row = ours.recv()
    assert row["reason"] == GOES_ON.reason
    worker.join(DEADLINE_S)
    pool = HandlerTarget(f"{__name__}:Pool")
    (done,) = rows_of(tmp_path / "known", pool, [again(row)], host=BESIDE, limit_s=None)
    assert (done["verdict"], done["error_text"]) == ("ACK", None), "called anew"
    isolated(pool, POLICY, BESIDE.concurrency, BESIDE.timeout_s, None).close()
