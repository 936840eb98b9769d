"""A driver waits for what its link has to do, and for its deadline; it misses neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from ha_replicator.transport.wakeups import Wakeup, Wakeups


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(), 60)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def never() -> float:
    return float("inf")


async def waiting(wakeup: Wakeup, deadline: Callable[[], float]) -> asyncio.Task[None]:
    """Returns a driver that waits already."""
    task = asyncio.create_task(wakeup.wait(deadline))
    await asyncio.sleep(0)
    return task


def test_only_a_move_that_leaves_something_to_do_wakes() -> None:
    async def scenario() -> None:
        due: list[bool] = []
        wakeups = Wakeups(lambda: None)
        driver = await waiting(wakeups.add(lambda: bool(due)), never)
        for _ in range(3):
            wakeups.wake()
            await asyncio.sleep(0)
            assert not driver.done()
        due.append(True)
        wakeups.wake()
        await driver

    run(scenario)


def test_what_is_done_at_once_wakes_nobody() -> None:
    async def scenario() -> None:
        wakeups = Wakeups(lambda: None)
        wakeup = wakeups.add(lambda: True)
        said: list[str] = []

        def say(whole: bool) -> bool:
            said.append("at once")
            return whole

        wakeup.at_once = lambda: say(whole=True)
        driver = await waiting(wakeup, never)
        for _ in range(3):
            wakeups.wake()
            await asyncio.sleep(0)
            assert not driver.done()
        assert said == ["at once"] * 3
        wakeup.at_once = lambda: say(whole=False)  # something is left to be done
        wakeups.wake()
        await driver
        wakeups.wake()
        assert len(said) == 4, "a driver that is at work has its turn"

    run(scenario)


def test_what_fails_at_once_is_left_to_the_driver_and_the_others_are_asked() -> None:
    async def scenario() -> None:
        wakeups = Wakeups(lambda: None)
        drivers = []
        for _ in range(2):
            wakeup = wakeups.add(lambda: True)

            def fail() -> bool:
                raise RuntimeError("a defect")

            wakeup.at_once = fail
            drivers.append(await waiting(wakeup, never))
        wakeups.wake()
        await asyncio.gather(*drivers)

    run(scenario)


def test_a_move_that_comes_before_the_driver_waits_is_kept() -> None:
    async def scenario() -> None:
        wakeups = Wakeups(lambda: None)
        wakeup = wakeups.add(lambda: False)
        wakeups.wake()  # the driver was busy: it looks again before it waits
        await wakeup.wait(never)
        driver = await waiting(wakeup, never)
        assert not driver.done(), "once"
        wakeup.set()
        await driver

    run(scenario)


def test_a_deadline_that_a_move_brings_nearer_is_kept() -> None:
    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        at = [now() + 3600]
        wakeups = Wakeups(lambda: None)
        driver = await waiting(wakeups.add(lambda: False), lambda: at[0])
        at[0] = now() + 0.01
        wakeups.wake()
        await driver
        assert now() >= at[0]

    run(scenario)


def test_a_deadline_that_went_away_while_the_timer_ran_wakes_nobody_early() -> None:
    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        at = [now() + 0.01]
        asked: list[float] = []

        def deadline() -> float:
            asked.append(now())
            return at[0]

        driver = await waiting(Wakeups(lambda: None).add(lambda: False), deadline)
        at[0] += 0.05
        await driver
        assert now() >= at[0]
        assert len(asked) > 1, "its timer ran out, and was set anew"

    run(scenario)


def test_who_is_forgotten_leaves_no_timer() -> None:
    async def scenario() -> None:
        wakeups = Wakeups(lambda: None)
        rung: list[float] = []

        def deadline() -> float:
            rung.append(0.0)
            return asyncio.get_running_loop().time() + 0.01

        wakeup = wakeups.add(lambda: False)
        driver = await waiting(wakeup, deadline)
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        wakeups.discard(wakeup)
        assert not wakeups.wanted
        before = len(rung)
        await asyncio.sleep(0.05)
        assert len(rung) == before

    run(scenario)
