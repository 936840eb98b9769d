"""Fixtures of the client's and the producer's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.turns import Turns


@pytest.fixture
def turns() -> Iterator[Turns]:
    """Time and threads that the test moves."""
    with Turns() as turns:
        yield turns
