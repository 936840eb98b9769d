"""One class for Spark 4.0, 4.1 and 4.2: the same path on the versions the tests do not run on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.spark_version_check import ROWS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_the_whole_path_on_another_spark(version: str, broker: BrokerProcess, tmp_path: Path) -> None:
    python = ROOT / ".spark-versions" / version / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no environment with PySpark {version}: make check-spark-versions")
    ran = subprocess.run(
        [python, "-m", "tests.support.spark_version_check", broker.endpoint, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "version": version,
        "read": {"first": ROWS, "second": ROWS},
        "bodies": True,
        "keys": True,
        "times": True,
        "verdicts": [[1, "ACK", ROWS - 1], [1, "RETRY", 1], [2, "ACK", 1]],
    }
