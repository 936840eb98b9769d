"""The front door asks services, never the store.

Contract: nothing under ingest_api/http reads the broker's store; what it needs has a service that a second
front door can use.
"""

from __future__ import annotations

import ast
from pathlib import Path

import ingest_api.http


def test_the_front_door_never_reaches_past_the_services() -> None:
    (root,) = ingest_api.http.__path__
    modules = sorted(Path(root).rglob("*.py"))
    assert len(modules) > 30
    past = [
        f"{module.name}:{node.lineno}"
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "store"
        and not (isinstance(node.value, ast.Attribute) and node.value.attr == "settings")
    ]
    assert past == []
