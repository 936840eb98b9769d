"""``lakemq quickstart --input``: the whole path on a user's own lines, by the command itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 240

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
    done = subprocess.run(
        [*command, "--key-field", "id", "--handler", "orders_handler:handle"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "q" / "report.json").read_text())
    assert (report["posted"], report["acknowledged"]) == (400, 400)
    assert (report["consumed"], report["dead_lettered"], report["retried"]) == (380, 20, 40)
    assert (report["gaps"], report["duplicates"], report["unfinished"]) == (0, 0, 0)
    for section in ("Deliveries by verdict", "The story of one dead letter", "Five rows of delivery_history"):
        assert section in done.stdout
