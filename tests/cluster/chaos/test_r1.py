"""CI's share of R1: ten rounds of kill -9 under load. `make chaos ONLY=R1 ROUNDS=200` runs more."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.chaos.r1 import run


def test_kill_nine_under_load_loses_and_invents_nothing(tmp_path: Path) -> None:
    assert run(rounds=10, seed=20261121, directory=tmp_path) > 0
