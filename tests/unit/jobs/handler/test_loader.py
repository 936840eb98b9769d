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


@pytest.mark.parametrize(
    "text",
    [
        "def f(a, b): pass",
        "def f(): pass",
        "def f(message, *, must): pass",
        "class f:\n    def __call__(self): pass",
    ],
)
def test_a_handler_that_cannot_be_called_with_a_message_is_refused(text: str, tmp_path: Path) -> None:
    name = f"arguments_{abs(hash(text))}"
    module(tmp_path, name, text)
    with pytest.raises(InvalidRequest, match="f is called with one argument, a message or a batch of them"):
        HandlerTarget(f"{name}:f", "auto", (str(tmp_path),)).load()


@pytest.mark.parametrize(
    "text",
    [
        "def f(message, more=1, *rest, **named): pass",
        "class f:\n    def __call__(self, message): pass",
        "class f:\n    @staticmethod\n    def __call__(message): pass",
        "import functools\nf = functools.partial(print, 'x')",
        "f = print",
    ],
)
def test_whatever_can_be_called_with_a_message_is_taken(text: str, tmp_path: Path) -> None:
    name = f"fits_{abs(hash(text))}"
    module(tmp_path, name, text)
    HandlerTarget(f"{name}:f", "auto", (str(tmp_path),)).load()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "imports_nothing_there",
            "import surely_missing_module\n",
            r"'surely_missing_module' \(.*there\.py:1\)",
        ),
        ("does_not_parse", "\ndef f(:\n", r"SyntaxError: invalid syntax \(does_not_parse\.py, line 2\)"),
        ("ends_python", "\nraise SystemExit(7)\n", r"SystemExit: 7 \(.*python\.py:2\)"),
        ("raises_by_itself", "\nint('x')\n", r"ValueError: invalid literal .*: 'x' \(.*itself\.py:2\)"),
        ("lacks_a_name", "import json\njson.lod\n", r"AttributeError: .*'lod' \(.*lacks_a_name\.py:2\)"),
    ],
)
def test_a_module_that_fails_by_itself_says_what_and_where(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    module(tmp_path, name, text)
    with pytest.raises(InvalidRequest, match=f"the handler's module {name} cannot be imported: .*{said}"):
        HandlerTarget(f"{name}:f", "auto", (str(tmp_path),)).load()
