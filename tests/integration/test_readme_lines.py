"""The README's first lines do what they say, as they stand; those that need Spark are left to its tests."""

from __future__ import annotations

import ast
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def first_block() -> str:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## First use\n", 1)[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block[1]


def test_the_first_lines_send_and_show_a_message(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines, count = re.subn(
        r"^(source|lakemq (consume|sql)) .*?(?<!\\)\n", "", first_block(), flags=re.M | re.S
    )
    assert count == 3
    assert lines.count("127.0.0.1:8090") == 3
    lines = lines.replace("127.0.0.1:8090", f"127.0.0.1:{port}").replace(
        "lakemq serve", f"lakemq serve --port {port}"
    )
    ended = subprocess.run(
        ["bash", "-emc", lines],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LAKEMQ_ENDPOINT": f"http://127.0.0.1:{port}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert '"status":"SEND_OK"' in ended.stdout
    assert re.search(r"q\d@0  created  17  ", ended.stdout), ended.stdout
    handler = (tmp_path / "billing.py").read_text(encoding="utf-8")
    assert [node.name for node in ast.parse(handler).body if isinstance(node, ast.FunctionDef)] == ["handle"]
