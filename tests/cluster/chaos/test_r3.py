"""CI's share of R3: a network that fails under load. `make chaos ONLY=R3 ROUNDS=200` runs more."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.chaos.r3 import run


def test_no_send_is_called_safe_that_the_slave_does_not_have(tmp_path: Path) -> None:
    assert run(4, seed=20261128, directory=tmp_path) > 0
