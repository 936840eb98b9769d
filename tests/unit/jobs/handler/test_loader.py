"""A handler is found by its target, and what is none is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.handler.loader import HandlerTarget
from store_native.errors import InvalidRequest


def module(directory: Path, name: str, text: str) -> Path:
    (directory / f"{name}.py").write_text(text)
    return directory


def test_a_handler_is_found_beside_the_user(tmp_path: Path) -> None:
    module(tmp_path, "beside_user", "class Shop:\n    @staticmethod\n    def sell(message): return None\n")
    loaded = HandlerTarget("beside_user:Shop.sell", "auto", (str(tmp_path),)).load()
    assert loaded.function(None) is None
    assert not loaded.vectorised


@pytest.mark.parametrize(
    "target", ["nocolon", ":f", "m:", "no_such_module_here:f", "json:no_such", "json:__doc__"]
)
def test_a_wrong_handler_target_is_refused(target: str) -> None:
    with pytest.raises(InvalidRequest):
        HandlerTarget(target).load()


def test_a_module_whose_own_import_fails_says_so_itself(tmp_path: Path) -> None:
    module(tmp_path, "imports_nothing_there", "import surely_missing_module\n")
    with pytest.raises(ModuleNotFoundError, match="surely_missing_module"):
        HandlerTarget("imports_nothing_there:f", "auto", (str(tmp_path),)).load()
