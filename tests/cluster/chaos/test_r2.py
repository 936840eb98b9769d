"""CI's share of R2: ten rounds of kill -9 of brokers. `make chaos ONLY=R2 ROUNDS=200` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.chaos.r2 import Shape, run


@pytest.mark.parametrize(
    ("rounds", "shape"),
    [
        (5, Shape()),
        (3, Shape(brokers=3, min_in_sync=2)),
        pytest.param(2, Shape(brokers=3, min_in_sync=1), marks=pytest.mark.nightly),
    ],
    ids=["a slave", "two slaves that both must have it", "two slaves of which one must have it"],
)
def test_kill_nine_of_masters_and_slaves_loses_doubles_and_takes_back_nothing(
    tmp_path: Path, rounds: int, shape: Shape
) -> None:
    assert run(rounds, seed=20261122 + shape.brokers, directory=tmp_path, shape=shape) > 0
