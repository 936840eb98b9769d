"""``lakemq quickstart --input``: the whole path on a user's own lines, by the command itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakemq import Client

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 480

HANDLER = """\
import json

from lakemq.handler import Verdict, vectorised


@vectorised
def handle(batch):
    rows = [json.loads(body) for body in batch.column("body").to_pylist()]
    return [Verdict.retry(reason="no amount") if row["amount"] is None else None for row in rows]
"""


def test_own_data_and_own_handler_go_the_whole_path(tmp_path: Path) -> None:
    rows = [{"id": i % 37, "amount": None if i % 20 == 0 else i} for i in range(400)]
    source = tmp_path / "orders.ndjson"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "orders_handler.py").write_text(HANDLER)
    command = [sys.executable, "-m", "lakemq.cli", "quickstart", "--dir", "q", "--input", "orders.ndjson"]
    process = subprocess.Popen(
        [*command, "--key-field", "id", "--handler", "orders_handler:handle"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        shown, _ = process.communicate(timeout=RUN_S)
    finally:
        process.terminate()  # it stops its broker and its Spark; SIGKILL would leave them
        process.wait()
    assert process.returncode == 0, shown
    report = json.loads((tmp_path / "q" / "report.json").read_text())
    assert (report["posted"], report["acknowledged"]) == (400, 400)
    assert (report["consumed"], report["dead_lettered"], report["retried"]) == (380, 20, 40)
    assert (report["gaps"], report["duplicates"], report["unfinished"]) == (0, 0, 0)
    for section in ("Deliveries by verdict", "The story of one dead letter", "Five rows of delivery_history"):
        assert section in shown


def test_ending_the_quickstart_ends_its_broker(tmp_path: Path) -> None:
    (tmp_path / "lines.ndjson").write_text('{"id": 1}\n')
    with subprocess.Popen(
        [sys.executable, "-m", "lakemq.cli", "quickstart", "--dir", "q", "--input", "lines.ndjson"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        # Each stage is printed when it is reached, into a pipe too.
        served = next(filter(None, (re.search(r"serving (http://\S+)", line) for line in process.stdout)))
        client = Client(served[1])
        assert client.ready()
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(RUN_S) == 128 + signal.SIGTERM
    assert not client.ready()
