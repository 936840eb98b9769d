"""The brokers of a test, which are closed at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.replicated_brokers import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as on_exit:
        yield Cluster(tmp_path, on_exit)
