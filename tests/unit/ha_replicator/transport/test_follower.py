"""A slave whose master does not answer tries again, less and less often, for good."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from ha_replicator.link_place import LinkPlace
from ha_replicator.transport.follower import FIRST_PAUSE_S, LONGEST_PAUSE_S, Follower
from ha_replicator.transport.wakeups import Wakeups
from tests.support.linked_brokers import open_store, slave_link


def test_pauses_grow_to_the_longest_with_chance_in_them(tmp_path: Path) -> None:
    pauses: list[float] = []
    tries = 0

    async def nobody() -> LinkPlace:
        nonlocal tries
        tries += 1
        raise ConnectionRefusedError("nobody listens")

    async def pass_over(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 40:
            raise asyncio.CancelledError

    store = open_store(tmp_path / "a", "slave")
    log = store.replicated_log()

    async def scenario() -> Follower:
        following = Follower(
            lambda local, now: slave_link(log, now, local_peer=local),
            log,
            nobody,
            Wakeups(lambda: None),
            on_change=lambda: None,
            pause=pass_over,
        )
        with pytest.raises(asyncio.CancelledError):
            await following.run()
        return following

    try:
        following = asyncio.run(scenario())
    finally:
        store.close()
    assert tries == 40
    assert following.last_failure == "MASTER_UNREACHABLE: nobody listens"
    bounds = [min(FIRST_PAUSE_S * 2 ** (at + 1), LONGEST_PAUSE_S) for at in range(40)]
    for pause, bound in zip(pauses, bounds, strict=True):
        assert bound / 2 <= pause <= bound
    assert len({later - before for before, later in pairwise(pauses[10:])}) > 1, "not all slaves at once"
