"""CI's share of R2: ten rounds of kill -9 of master and slave. `make chaos ONLY=R2 ROUNDS=200` runs more."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.chaos.r2 import run


def test_kill_nine_of_master_and_slave_loses_nothing_acknowledged_and_takes_nothing_back(
    tmp_path: Path,
) -> None:
    assert run(rounds=10, seed=20261122, directory=tmp_path) > 0
