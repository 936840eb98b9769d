"""An empty ledger of all tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.views import TABLES
from tests.support.ledger_rows import path_ledger


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    location = path_ledger(tmp_path / "ledger")
    location.create(*TABLES)
    return location
