"""A slave whose log is not its master's knows it, and says so until it follows one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ha_replicator.transport.follower import Follower
from ingest_api.broker.parted_log import PartedLog
from store_native import ReplicatedLog


class Log:
    """A log with its epochs, and the highest one that was heard of."""

    def __init__(self, *epochs: int, seen: int) -> None:
        self.held = [(epoch, 0) for epoch in epochs]
        self.seen = seen

    def epochs(self) -> list[tuple[int, int]]:
        return self.held

    def role(self) -> tuple[str, int]:
        return "slave", self.seen


def parted(log: Log) -> PartedLog:
    return PartedLog(cast(ReplicatedLog, log))


def follower(refusal: str | None = None, follows: int | None = None) -> Follower:
    link = None if follows is None else SimpleNamespace(following=True, epoch=follows)
    return cast(Follower, SimpleNamespace(link=link, refusal=refusal))


def test_a_log_that_has_nothing_of_the_epoch_its_broker_heard_of_is_another_one_without_a_master_too() -> (
    None
):
    log = parted(Log(1, seen=65))
    assert log.look(is_slave=True, follower=None)
    assert log.reason is not None
    assert "of epoch 1, and has nothing of epoch 65" in log.reason
    assert not log.look(is_slave=True, follower=follower()), "said once"
    assert log.look(is_slave=False, follower=None), "a master's is its own"
    assert log.reason is None


def test_a_log_that_followed_the_newest_master_is_its_before_it_has_anything_of_its_epoch() -> None:
    held = Log(1, seen=65)
    log = parted(held)
    assert not log.look(is_slave=True, follower=follower(follows=65))
    assert not log.look(is_slave=True, follower=follower()), "the master is away"
    held.seen = 129
    assert log.look(is_slave=True, follower=follower()), "another master, which it did not follow"


def test_a_log_that_a_master_refused_is_another_one_until_it_follows() -> None:
    log = parted(Log(1, seen=1))
    assert not log.look(is_slave=True, follower=follower())
    assert log.look(is_slave=True, follower=follower("LOG_DIVERGED: the logs differ before 91"))
    assert log.reason == "its log parted from its master's: LOG_DIVERGED: the logs differ before 91"
    assert log.look(is_slave=True, follower=follower(follows=1))
    assert log.reason is None
